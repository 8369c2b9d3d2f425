"""The exceptions for OAuth error codes, each with an HTTP status and a description for client developers.

An error has three parts. `error` is the code that is sent. `reason` is a fixed word for logs, metrics and tests that is
never sent. `description` is sent and looked up by the reason. Reasons that a caller must not be able to distinguish
share one description.

Clauses: RFC 6749 §4.1.2.1, §5.2, RFC 6750 §3.1, SPEC §2.4, §7.1, §7.2
"""

from __future__ import annotations

from typing import ClassVar, Final

from .error_descriptions import DESCRIPTIONS

AUTHENTICATION_REALM: Final = "token-service"


class OAuthError(Exception):
    """A refusal with an OAuth error code.

    `status` is the HTTP status of its response: that of its class, unless HTTP has a more exact one for the reason.
    """

    error: ClassVar[str]
    status = 400

    def __init__(
        self, reason: str, *, name: str = "", status: int | None = None, retry_after_seconds: int | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status or self.status
        self.description = DESCRIPTIONS[reason].format(name=name)
        self.retry_after_seconds = retry_after_seconds

    @property
    def challenge(self) -> str | None:
        """The value of the WWW-Authenticate header that must be sent with this error, or None."""
        return None


class InvalidRequest(OAuthError):
    error = "invalid_request"


class InvalidClient(OAuthError):
    """A failed client authentication.

    Clauses: RFC 6749 §5.2 (401, and a challenge that matches the scheme which the client may use)
    """

    error = "invalid_client"
    status = 401

    @property
    def challenge(self) -> str | None:
        return f'Basic realm="{AUTHENTICATION_REALM}"'


class ClientThrottled(OAuthError):
    """A client authentication that a limit refused.

    Clauses: RFC 6749 §2.3.1 (secrets are protected against guessing)
    """

    error = "invalid_client"
    status = 429


class InvalidGrant(OAuthError):
    error = "invalid_grant"


class LoginThrottled(OAuthError):
    """A login that a limit refused before the password was checked.

    It sends `invalid_grant` with status 429. It is not a subclass of InvalidGrant, as the password was not checked.

    Clauses: RFC 6749 §4.3.2 (passwords are protected against guessing)
    """

    error = "invalid_grant"
    status = 429


class UnauthorizedClient(OAuthError):
    error = "unauthorized_client"


class UnsupportedResponseType(OAuthError):
    """A response_type other than `code`.

    Clauses: RFC 6749 §4.1.2.1
    """

    error = "unsupported_response_type"


class AccessDenied(OAuthError):
    """A user who denied the request, or who may not log in.

    Clauses: RFC 6749 §4.1.2.1, SPEC §4.1
    """

    error = "access_denied"


class UnsupportedGrantType(OAuthError):
    error = "unsupported_grant_type"


class InvalidScope(OAuthError):
    error = "invalid_scope"


class TemporarilyUnavailable(OAuthError):
    error = "temporarily_unavailable"
    status = 503


class ServerError(OAuthError):
    error = "server_error"
    status = 500


class BearerMissing(Exception):
    """A request without a Bearer credential. Its response has a challenge, but no error code.

    Clauses: RFC 6750 §3.1
    """

    challenge = f'Bearer realm="{AUTHENTICATION_REALM}"'


class BearerError(OAuthError):
    """An error whose code and description are also sent in the Bearer challenge."""

    @property
    def challenge(self) -> str:
        return f'Bearer realm="{AUTHENTICATION_REALM}", error="{self.error}", error_description="{self.description}"'


class MalformedBearer(BearerError):
    error = "invalid_request"


class InvalidToken(BearerError):
    error = "invalid_token"
    status = 401


class InsufficientScope(BearerError):
    """An access token without the required scope.

    `scope` is the required scope, which the challenge repeats. It is empty if it could not be parsed.

    Clauses: RFC 6750 §3, §3.1
    """

    error = "insufficient_scope"
    status = 403

    def __init__(self, reason: str, *, scope: str = "") -> None:
        super().__init__(reason)
        self.scope = scope

    @property
    def challenge(self) -> str:
        return super().challenge + (f', scope="{self.scope}"' if self.scope else "")
