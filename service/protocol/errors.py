"""The exceptions for OAuth error codes, each with an HTTP status and a description for client developers.

An error has three parts. `error` is the code that is sent. `reason` is a fixed word for logs, metrics and tests that is
never sent. `description` is sent and looked up by the reason. Reasons that a caller must not be able to distinguish
share one description.

Clauses: RFC 6749 §4.1.2.1, §5.2, RFC 6750 §3, §3.1, SPEC §2.4, §7.1, §7.2
"""

from __future__ import annotations

from typing import ClassVar, Final, Protocol

import msgspec

from .token_response import NO_STORE_HEADERS

AUTHENTICATION_REALM: Final = "token-service"

_WRONG_CLIENT: Final = "Client authentication failed: unknown client, or a wrong, missing or unexpected client secret."
_WRONG_LOGIN: Final = "The user name or the password is wrong."
_DEAD_REFRESH_TOKEN: Final = "The refresh token is unknown, expired or revoked, or was issued to another client."
_DEAD_CODE: Final = "The authorization code is unknown, expired or already used, or was issued to another client."
_TOO_MANY_CHECKS: Final = "Too many passwords or secrets are being checked; try again shortly."
_PROVIDER_AWAY: Final = "The identity provider is not responding; try again shortly."
_NOT_ADMITTED: Final = "This user is not allowed to log in here."
_DEAD_ACCESS_TOKEN: Final = "The access token is unknown, expired or revoked."


DESCRIPTIONS: Final[dict[str, str]] = {
    # HTTP and the form
    "content_type_differs": "The request body must have the content type {name}, in UTF-8.",
    "form_malformed": "The request body is not a form in UTF-8. Percent-encode %, &, +, = and all but ASCII; "
    "curl does this with --data-urlencode.",
    "json_malformed": "The request body is not valid JSON in UTF-8, contains a field twice, or is nested too deeply.",
    "form_too_large": "The request body is larger than 64 KiB.",
    "form_too_slow": "The request body did not arrive in time.",
    "request_malformed": "Malformed HTTP request.",
    "parameter_repeated": "{name} was sent more than once.",
    "parameter_missing": "The parameter {name} is missing or empty.",
    "parameter_malformed": "The parameter {name} contains characters that are not allowed.",
    "parameters_too_many": "The form or the query has more than 128 parameters.",
    "parameter_in_query": "Send {name} in the request body, not in the URI.",
    "content_encoding_unknown": "Send the request body without Content-Encoding, or with identity.",
    "transfer_coding_unknown": "The only supported Transfer-Encoding is chunked.",
    "target_malformed": "The request target must not contain #. Percent-encode it as %23.",
    "host_malformed": "An HTTP/1.1 request must have exactly one Host header, with a host name or an IP address.",
    "headers_too_many": "The request has more than 256 headers or more than 256 trailers.",
    "path_too_long": "The path is longer than 4 KiB.",
    "body_in_too_many_chunks": "The body has more than 256 chunks, or long chunk headers. Send larger chunks.",
    "head_too_large": "The request line and the headers together are larger than 64 KiB.",
    "head_too_slow": "The request line and the headers did not arrive in time.",
    "unknown_path": "Unknown path. Paths are case-sensitive, and a trailing slash matters.",
    "method_not_allowed": "This method is not allowed here; use {name}.",
    # The client
    "client_authenticated_twice": "Use one client_id and one authentication method: HTTP Basic or the request body.",
    "client_missing": "Client authentication is missing: send HTTP Basic or, in a form, client_id (and client_secret).",
    "client_unknown": _WRONG_CLIENT,
    "client_secret_wrong": _WRONG_CLIENT,
    "client_secret_missing": _WRONG_CLIENT,
    "client_secret_unexpected": _WRONG_CLIENT,
    "basic_malformed": "The Authorization header is not valid HTTP Basic.",
    "client_throttled": "Too many failed client authentications from this IP address; try again later.",
    "grant_type_not_registered": "This client is not registered for this grant type.",
    "introspection_not_registered": "This client is not registered for introspection.",
    "user_revocation_not_registered": "This client is not registered to revoke the tokens of users.",
    "user_management_not_registered": "This client is not registered to manage users.",
    "role_beyond_client": "The user has, or would be given, a role outside the scope of this client.",
    "user_malformed": "Invalid user: {name}.",
    "password_missing": "The user does not exist. To create it, send a password or a password_hash.",
    "condition_malformed": "If-Match and If-None-Match must be *, each once, and Content-Range is not supported.",
    "user_taken": "Another user has this {name}.",
    "user_missing": "The user to rename does not exist.",
    "condition_false": "The user already exists (If-None-Match: *), or does not exist (If-Match: *).",
    "sub_id_malformed": "The JSON object must have a sub_id, an object of the format opaque with id, iss_sub with iss "
    "and sub, or email with email; all values must be non-empty strings.",
    "issuer_unknown": "iss must be the base URL, or the issuer of a realm whose username_claim is sub.",
    "grant_type_unknown": "The grant type is not supported; use authorization_code, password or refresh_token.",
    # The authorization request
    "client_unregistered": "No client is registered with this client_id.",
    "redirect_uri_unregistered": "This redirect_uri is not registered for the client.",
    "state_too_long": "The parameter state is longer than 8 KiB when encoded as a JSON string.",
    "response_type_unknown": "The response_type is not supported; use code.",
    "code_challenge_missing": "This client must send a code_challenge with code_challenge_method=S256.",
    "code_challenge_malformed": "The code_challenge must be a SHA-256 in base64url: 43 characters without padding.",
    "code_challenge_method_unsupported": "The code_challenge_method must be S256.",
    "max_age_malformed": "The parameter max_age must be a whole number of seconds, of at most 10 digits.",
    "prompt_none": "prompt=none is not supported, because every request asks the user for consent.",
    "user_denied": "The user denied the request.",
    "provider_denied": "The identity provider denied the login.",
    "user_not_admitted": _NOT_ADMITTED,
    "email_not_verified": _NOT_ADMITTED,
    "user_without_role": "The user has none of the requested roles.",
    # The scope
    "scope_missing": "The parameter scope is missing; it must contain exactly one realm and one role.",
    "scope_malformed": "The scope is malformed; separate items such as realm:NAME and role:NAME with single spaces.",
    "scope_item_unknown": "The scope item {name} is unknown.",
    "scope_item_repeated": "The scope contains {name} more than once.",
    "scope_not_one_realm_one_role": "The scope must contain exactly one realm and exactly one role.",
    "scope_without_default": "The parameter scope is missing, and the client has no default scope.",
    "scope_of_two_realms": "The scope may contain at most one realm.",
    "scope_without_role": "The scope must contain a role.",
    "scope_beyond_client": "This client may not request {name}.",
    "scope_beyond_user": "The user does not have {name}.",
    "scope_beyond_grant": "{name} was not part of the original grant.",
    "realm_without_login": "No login is configured for {name}.",
    # The grants
    "user_unknown": _WRONG_LOGIN,
    "user_disabled": _WRONG_LOGIN,
    "provider_doubts_email": _WRONG_LOGIN,
    "password_wrong": _WRONG_LOGIN,
    "login_throttled": "Too many failed logins; try again later.",
    "code_unknown": _DEAD_CODE,
    "code_of_another_client": _DEAD_CODE,
    "code_revoked": _DEAD_CODE,
    "code_repeated": _DEAD_CODE,
    "code_scope_withdrawn": "This client may no longer request the scope of this authorization code.",
    "redirect_uri_differs": "redirect_uri does not match the one in the authorization request.",
    "code_verifier_missing": "code_verifier is missing, but the authorization request had a code_challenge.",
    "code_verifier_wrong": "The code_verifier does not match the code_challenge.",
    "code_verifier_unexpected": "A code_verifier was sent, but the authorization request had no code_challenge.",
    "refresh_token_malformed": _DEAD_REFRESH_TOKEN,
    "refresh_token_unknown": _DEAD_REFRESH_TOKEN,
    "refresh_token_of_another_client": _DEAD_REFRESH_TOKEN,
    "refresh_token_replayed": "The refresh token was used before and its grace period is over; the session is revoked.",
    "refresh_token_scope_withdrawn": "This client may no longer request the scope of this refresh token.",
    "refresh_without_secret": "The session began with a client secret, and the client no longer has one. Log in again.",
    # The logout token
    "realm_without_logout": "This realm does not support back-channel logout.",
    "logout_token_malformed": "The logout_token is not a signed JWT.",
    "logout_token_claim_wrong": "The {name} of the logout token violates OpenID Connect Back-Channel Logout.",
    "logout_token_signature_wrong": "The signature of the logout token matches none of the provider's published keys.",
    "logout_token_used": "A logout token with this jti has already been processed.",
    # The bearer
    "bearer_repeated": "The request carries more than one Authorization header.",
    "access_token_unknown": _DEAD_ACCESS_TOKEN,
    "needed_scope_malformed": "The query may contain only one parameter, scope, with items separated by single spaces.",
    "needed_scope_missing": "The access token lacks part of the required scope.",
    # The service
    "store_unavailable": "The service cannot use its database at the moment; try again shortly.",
    "store_full": "The service cannot store anything at the moment; try again shortly.",
    "hashing_queue_full": _TOO_MANY_CHECKS,
    "checks_queue_full": _TOO_MANY_CHECKS,
    "provider_unavailable": _PROVIDER_AWAY,
    "provider_busy": _PROVIDER_AWAY,
    "provider_throttled": "The provider rejected too many logins from this IP address or user; try again later.",
    "seed_not_loaded": "Clients and users are still being loaded; try again shortly.",
    "secret_key_not_in_use": "This instance of the service cannot issue or accept tokens yet; try again shortly.",
    "record_changed": "The user or their sessions changed during this request; try again.",
    "registry_locked": "Another change of clients or users is in progress; try again shortly.",
    "pages_throttled": "Too many requests from this IP address; try again later.",
    "unforeseen": "The service encountered an unexpected error.",
}
"""The descriptions that are sent, by the reason of the error."""


class NamedUser(Protocol):
    """A user as events name them. `subject` is unique over realms, and `username` in its realm."""

    @property
    def realm(self) -> str: ...
    @property
    def username(self) -> str: ...
    @property
    def subject(self) -> str: ...


class OAuthError(Exception):
    """A refusal with an OAuth error code.

    `status` is the HTTP status of its response: that of its class, unless HTTP has a more exact one for the reason.
    `user` is the user whose login is refused, if there is a record. It is for security events and never sent.
    """

    error: ClassVar[str]
    status = 400
    challenge: str | None = None
    """The value of the WWW-Authenticate header that must be sent with this error."""

    def __init__(
        self,
        reason: str,
        *,
        name: str = "",
        user: NamedUser | None = None,
        status: int = 0,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.user = user
        self.status = status or self.status
        self.description = DESCRIPTIONS[reason].format(name=name)
        self.retry_after_seconds = retry_after_seconds


class InvalidRequest(OAuthError):
    error = "invalid_request"


class InvalidClient(OAuthError):
    """A failed client authentication.

    Clauses: RFC 6749 §5.2 (401, and a challenge that matches the scheme which the client may use)
    """

    error = "invalid_client"
    status = 401
    challenge = f'Basic realm="{AUTHENTICATION_REALM}"'


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
    """An error whose code and description are also sent in the Bearer challenge.

    `scope` is the required scope, which the challenge repeats. It is empty if it could not be parsed.

    Clauses: RFC 6750 §3, §3.1
    """

    def __init__(self, reason: str, *, scope: str = "") -> None:
        super().__init__(reason)
        named = {"realm": AUTHENTICATION_REALM, "error": self.error, "error_description": self.description}
        attributes = named | ({"scope": scope} if scope else {})
        self.challenge = "Bearer " + ", ".join(f'{name}="{value}"' for name, value in attributes.items())


class MalformedBearer(BearerError):
    error = "invalid_request"


class InvalidToken(BearerError):
    error = "invalid_token"
    status = 401


class InsufficientScope(BearerError):
    error = "insufficient_scope"
    status = 403


class ErrorResponse(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes


def render_refusal(error: OAuthError | BearerMissing, resource_metadata: str = "") -> ErrorResponse:
    """Return the HTTP response for an error.

    `resource_metadata` is the URL of the API's protected resource metadata, which the challenge of an API names.

    Clauses: RFC 6750 §3.1 (a challenge only, and no error code, where no credential was sent), RFC 9728 §5.1
    """
    metadata = f', resource_metadata="{resource_metadata}"' if resource_metadata else ""
    if isinstance(error, BearerMissing):
        return ErrorResponse(401, NO_STORE_HEADERS | {"WWW-Authenticate": error.challenge + metadata}, b"")
    headers = NO_STORE_HEADERS | {"Content-Type": "application/json"}
    if error.challenge is not None:
        headers["WWW-Authenticate"] = error.challenge + metadata
    if error.retry_after_seconds is not None:
        headers["Retry-After"] = str(error.retry_after_seconds)
    body = msgspec.json.encode({"error": error.error, "error_description": error.description})
    return ErrorResponse(error.status, headers, body)
