"""Checks of the responses of an identity provider, and the errors of a login with an unacceptable response.

Clauses: RFC 6749 §4.1.2, §4.1.2.1, §5.1, §5.2, §7.1, RFC 7662 §2.2, RFC 8414 §2, §3.3, RFC 9207 §2.4, SPEC §2.2
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from .authorization import Query
from .errors import AccessDenied, TemporarilyUnavailable
from .grammar import B64TOKEN, is_showable, is_vschar
from .provider import IdentityProvider, ProviderEndpoints
from .uri import find_server_mistake
from .user import MAX_NAME_CHARACTERS, is_username, normalize_claim

CALLBACK_PARAMETERS: Final = frozenset({"state", "code", "error", "iss"})
RETRY_SECONDS: Final = 1

_ERROR_CODE: Final = re.compile(r"[a-z_]{1,40}")
_NOT_OF_LOGIN: Final = frozenset(
    {"invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope", "invalid_request"}
    | {"too_many_requests"}
)
"""Errors about our registration or too many requests. All others may be about the login."""

Claims = Mapping[str, Any]
Record = TypeVar("Record")


class InvalidProviderResponse(Exception):
    """A missing or invalid response of the identity provider. The message is for the log and repeats no secret."""


class InvalidLoginResponse(InvalidProviderResponse):
    """An invalid response to one login, which a single person may have caused; other logins may still work."""


class ProviderError(Exception):
    """A well-formed error response of the identity provider. `error` is its code, if it has the form of a code."""

    def __init__(self, error: str) -> None:
        super().__init__(f"it returned the error {error}")
        self.error = error


class ProviderRejected(TemporarilyUnavailable):
    """A response of the identity provider that is not a login.

    The cause may be our registration at the provider, or this one request.
    """


class LoginRefused(ProviderRejected):
    """A refusal of one login for a reason of the identity provider's own, which may hide a wrong password."""


class CodeRejected(AccessDenied):
    """An authorization code that a browser brought back and the identity provider does not accept.

    Either the provider did not issue the code, or it issued the code to another browser, or the browser took too long.
    """


class ProviderTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Clauses: RFC 6749 §5.1"""

    access_token: str
    token_type: str
    id_token: str | None = None


class _ErrorAnswer(msgspec.Struct, frozen=True):
    error: str


class ExternalIdentity(NamedTuple):
    """The user who logged in, as named by the identity provider. `name` is for display and may be empty.

    `sid` is the id of the session there, from a verified ID token, or empty.

    `email_unverified` is True if the user name is an e-mail address that must be verified, and the provider does not
    report it as verified.
    """

    username: str
    name: str
    email_unverified: bool
    sid: str = ""


def parse_metadata(body: bytes, issuer: str) -> ProviderEndpoints:
    """Return the metadata. Raises InvalidProviderResponse if its issuer or an address in it is not acceptable.

    Clauses: RFC 8414 §3.2, §3.3 (the issuer is the one that was asked)
    """
    metadata = parse_json(body, ProviderEndpoints, "its metadata")
    if metadata.issuer != issuer:
        raise InvalidProviderResponse(
            f"its metadata is for the issuer {metadata.issuer[:200]!r}; the seed file has {issuer!r}"
        )
    for name in ("authorization_endpoint", "token_endpoint", "introspection_endpoint", "userinfo_endpoint", "jwks_uri"):
        address = getattr(metadata, name)
        if address and (find_server_mistake(address) is not None or (_is_plain(address) and not _is_plain(issuer))):
            raise InvalidProviderResponse(f"the {name} in its metadata is not an acceptable URL")
    return metadata


def _is_plain(address: str) -> bool:
    return urlsplit(address).scheme != "https"


def get_endpoints(provider: IdentityProvider, metadata: ProviderEndpoints | None) -> ProviderEndpoints:
    """Return the endpoints of an identity provider; values in the record override the metadata.

    If the record has a source that identifies the user, all such sources in the metadata are ignored. Raises
    InvalidProviderResponse if a required endpoint is missing.
    """
    metadata = metadata or ProviderEndpoints(issuer=provider.issuer)
    sources = provider if provider.names_a_source else metadata
    server = msgspec.structs.replace(
        metadata,
        authorization_endpoint=provider.authorization_endpoint or metadata.authorization_endpoint,
        token_endpoint=provider.token_endpoint or metadata.token_endpoint,
        introspection_endpoint=sources.introspection_endpoint,
        userinfo_endpoint=sources.userinfo_endpoint,
        jwks_uri=sources.jwks_uri,
    )
    if not (server.authorization_endpoint and server.token_endpoint):
        raise InvalidProviderResponse("its metadata lacks authorization_endpoint or token_endpoint")
    if not (server.can_check_id_tokens or server.has_other_source):
        raise InvalidProviderResponse("its metadata has no endpoint that identifies the user")
    return server


def read_callback(query: Query, server: ProviderEndpoints) -> str:
    """Return the authorization code from the redirect that a browser brings back.

    The issuer is checked before the rest. Raises AccessDenied if the identity provider refused the login, and
    InvalidProviderResponse if the redirect is invalid or carries another error.

    Clauses: RFC 6749 §4.1.2, §4.1.2.1, §10.14, RFC 9207 §2.4
    """
    if query.mistakes:
        raise InvalidProviderResponse("its redirect repeats a parameter or cannot be parsed")
    issuer = query.values.get("iss", "")
    if issuer and server.issuer and issuer != server.issuer:
        raise InvalidProviderResponse("its redirect comes from another issuer")
    if server.names_itself and not issuer:
        raise InvalidProviderResponse("its redirect lacks iss")
    error, code = query.values.get("error"), query.values.get("code")
    if error == "access_denied" and code is None:
        raise AccessDenied("provider_denied")
    if error is not None:
        raise InvalidProviderResponse(f"it redirected with the error {_name_error(error)}")
    if code is None or not is_vschar(code):
        raise InvalidProviderResponse("its redirect carries neither a code nor an error")
    return code


def parse_token_response(status: int, body: bytes) -> ProviderTokens:
    """Return the tokens of a token response.

    Raises ProviderError for an error in the standard form and for status 429. Raises InvalidLoginResponse for another
    4xx response, and InvalidProviderResponse for any other invalid response.

    Clauses: RFC 6749 §5.1, §5.2, §7.1 (a token of a type that is not understood is not used)
    """
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        raise ProviderError("too_many_requests")
    if 400 <= status < 500:
        try:
            refusal = parse_json(body, _ErrorAnswer, f"its response with status {status}")
        except InvalidProviderResponse as odd:
            raise InvalidLoginResponse(str(odd)) from None
        raise ProviderError(_name_error(refusal.error))
    check_ok(status, "its token response")
    answer = parse_json(body, ProviderTokens, "its token response")
    if answer.token_type.lower() != "bearer" or not B64TOKEN.fullmatch(answer.access_token):
        raise InvalidProviderResponse("its token response has no bearer token")
    return answer


def parse_claims(status: int, body: bytes, what: str) -> Claims:
    check_ok(status, what)
    return parse_json(body, dict[str, Any], what)


def check_active(claims: Claims) -> None:
    """Raise InvalidProviderResponse unless the introspection response reports an active token.

    Clauses: RFC 7662 §2.2
    """
    if claims.get("active") is not True:
        raise InvalidProviderResponse("its introspection endpoint reports the new token as inactive")


def check_ok(status: int, what: str) -> None:
    """Raise InvalidProviderResponse unless the status is 200.

    A redirect in particular is refused, because following it would carry secrets to another address.
    """
    if status != HTTPStatus.OK:
        raise InvalidProviderResponse(f"{what} returned status {status}")


def parse_json(body: bytes, form: type[Record], what: str) -> Record:
    try:
        return msgspec.json.decode(body, type=form)
    except (ValueError, RecursionError):
        raise InvalidProviderResponse(f"{what} is not JSON of the expected format") from None


def read_person(claims: Claims, username_claim: str, *, needs_verified_email: bool) -> ExternalIdentity:
    """Return the identity in the claims. An e-mail address is normalized, so that records and events have one name.

    A numeric user name is converted to its digits, because some servers use numbers as identifiers. Raises
    InvalidLoginResponse if the claim is missing, or does not fit in a record and on a page.
    """
    username = claims.get(username_claim)
    if isinstance(username, int) and not isinstance(username, bool):
        username = str(username)
    if not isinstance(username, str) or not is_username(username):
        form = f"1 to {MAX_NAME_CHARACTERS} characters in one line"
        raise InvalidLoginResponse(f"the claim {username_claim} is missing, or is not {form}")
    name = claims.get("name")
    shown = name if isinstance(name, str) and is_username(name) and is_showable(name) else ""
    email_unverified = needs_verified_email and not _is_email_verified(claims)
    return ExternalIdentity(normalize_claim(username, username_claim), shown, email_unverified=email_unverified)


def _is_email_verified(claims: Claims) -> bool:
    """Return True if the identity provider reports the e-mail address as verified.

    Some servers send `true` as text. If the claim is missing, the address is unverified, and the user may have entered
    another person's address.

    Clauses: OpenID Connect Core 1.0 §5.1 (email_verified)
    """
    verified = claims.get("email_verified")
    return verified is True or verified == "true"


def make_unavailable() -> TemporarilyUnavailable:
    return TemporarilyUnavailable("provider_unavailable", retry_after_seconds=RETRY_SECONDS)


def make_refusal(problem: Exception, *, with_password: bool) -> TemporarilyUnavailable:
    """Return the error for a caller whose login the problem ended. Its kind decides which login limits count it.

    `with_password` is True if a password was sent, which a refusal may then be about.
    """
    if not isinstance(problem, ProviderError | InvalidLoginResponse):
        return make_unavailable()
    is_of_login = isinstance(problem, InvalidLoginResponse) or problem.error not in _NOT_OF_LOGIN
    kind = LoginRefused if with_password and is_of_login else ProviderRejected
    return kind("provider_unavailable", retry_after_seconds=RETRY_SECONDS)


def _name_error(error: str) -> str:
    """Return the error code for the log, or a placeholder if the text does not have the form of a code.

    This keeps other text, which an attacker may have chosen, out of the log.
    """
    return error if _ERROR_CODE.fullmatch(error) else "(not a code)"
