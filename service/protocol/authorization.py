"""Rules for authorization requests: the checks before any redirect, and the errors that travel by redirect.

Clauses: RFC 6749 §3.1, §3.1.1, §3.1.2, §4.1.1, §4.1.2, §4.1.2.1, RFC 7636 §4.3, §4.4.1, RFC 8252 §7.3, RFC 9207 §2,
OpenID Connect Core 1.0 §3.1.2.1, SPEC §4.1, §7.3, §7.4
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from .client import AUTHORIZATION_CODE, MAX_CLIENT_ID_CHARACTERS, Client, check_grant_type, check_scope
from .errors import AccessDenied, InvalidRequest, InvalidScope, OAuthError, UnsupportedResponseType
from .grammar import S256_CHALLENGE, SECONDS, is_vschar
from .parameters import read_fields
from .scope import Scope, parse_scope
from .uri import free_loopback_port

AUTHORIZATION_PARAMETERS: Final = frozenset(
    {
        "response_type",
        "client_id",
        "redirect_uri",
        "scope",
        "state",
        "code_challenge",
        "code_challenge_method",
        "ui_locales",
        "prompt",
        "max_age",
    }
)
MAX_STATE_BYTES: Final = 8 * 1024
"""The limit for `state` encoded as JSON, the form in which it is stored."""


class ReturnAddress(msgspec.Struct, frozen=True):
    """A verified redirect target: a redirect_uri that is registered for the client, and the client's `state`.

    Code may redirect to a client only with a ReturnAddress.
    """

    redirect_uri: str
    state: str | None


class AuthorizationRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A valid authorization request.

    `scope` holds the requested roles, and a realm if the request named one. A request without a scope gets the client's
    default scope. `language` is the tag of the language that the request's `ui_locales` chose for our pages, or empty.
    """

    client_id: str
    return_address: ReturnAddress
    scope: str
    code_challenge: str | None
    language: str = ""


class ConsentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An authorization request and the exact scope that the user is asked to grant.

    The consent page shows every item of this scope.
    """

    request: AuthorizationRequest
    scope: str


class AuthorizationRefused(Exception):
    """An OAuth error that is sent to the client by redirect.

    Clauses: RFC 6749 §4.1.2.1
    """

    def __init__(self, return_address: ReturnAddress, error: OAuthError) -> None:
        super().__init__(error.reason)
        self.return_address = return_address
        self.error = error


class Query(NamedTuple):
    """The known parameters of a query: values by name, and the reason of an error for each repeated or malformed name.

    A repeated name may have a value, too.
    """

    values: Mapping[str, str]
    mistakes: Mapping[str, str]


def parse_query(query: bytes, known: Collection[str] = AUTHORIZATION_PARAMETERS) -> Query:
    """Parse the known parameters of a query string.

    Unknown parameters are ignored. A parameter with an empty value counts as omitted. Raises InvalidRequest if the
    query has more than MAX_FIELDS parameters.

    Clauses: RFC 6749 §3.1, Appendix B
    """
    values: dict[str, str] = {}
    named: set[str] = set()
    mistakes: dict[str, str] = {}
    for name, value in read_fields(query):
        if name is None or name not in known:
            continue
        if name in named:
            mistakes[name] = "parameter_repeated"
        elif value is None:
            mistakes[name] = "parameter_malformed"
        elif value:
            values[name] = value
        named.add(name)
    return Query(values, mistakes)


def read_client_id(query: Query) -> str:
    """Return the client_id. Raises InvalidRequest if it is missing, repeated or malformed.

    Clauses: RFC 6749 §4.1.1, SPEC §4.1
    """
    client_id = _read_once(query, "client_id")
    if not is_vschar(client_id) or len(client_id) > MAX_CLIENT_ID_CHARACTERS:
        raise InvalidRequest("client_unregistered")
    return client_id


def require_registered(client: Client | None) -> Client:
    """Return the client, or raise InvalidRequest if it is None.

    The error is shown as a page: no redirect is allowed before the redirect_uri is verified.

    Clauses: RFC 6749 §4.1.2.1, SPEC §4.1
    """
    if client is None:
        raise InvalidRequest("client_unregistered")
    return client


def verify_return_address(query: Query, client: Client) -> ReturnAddress:
    """Return the redirect target, or raise InvalidRequest unless the redirect_uri is registered for the client.

    The error is shown as a page: no redirect is allowed before the redirect_uri is verified. A `state` that is repeated
    or malformed is left out.

    Clauses: RFC 6749 §3.1.2.3, §3.1.2.4, §4.1.2.1, §10.6, §10.15, RFC 6819 §5.2.3.5, SPEC §4.1, §7.4
    """
    redirect_uri = _read_once(query, "redirect_uri")
    if not is_registered(client, redirect_uri):
        raise InvalidRequest("redirect_uri_unregistered")
    return ReturnAddress(redirect_uri, None if "state" in query.mistakes else query.values.get("state"))


def is_registered(client: Client, redirect_uri: str) -> bool:
    """Return True if the redirect_uri is registered for the client.

    Addresses are compared character by character. A public client may use any port of a registered loopback address.

    Clauses: RFC 6749 §3.1.2.3, RFC 8252 §7.3
    """
    if redirect_uri in client.redirect_uris:
        return True
    presented = free_loopback_port(redirect_uri)
    return client.is_public and presented is not None and presented in map(free_loopback_port, client.redirect_uris)


@contextmanager
def redirecting_oauth_errors_to(return_address: ReturnAddress) -> Iterator[None]:
    """Turn every OAuthError of the block into AuthorizationRefused, which is sent to the client by redirect."""
    try:
        yield
    except OAuthError as error:
        raise AuthorizationRefused(return_address, error) from None


def parse_authorization_request(
    query: Query, client: Client, return_address: ReturnAddress, language: str
) -> AuthorizationRequest:
    """Parse the rest of an authorization request, whose client and redirect_uri are verified. Raises OAuthError.

    `language` is what its `ui_locales` chose from the languages of our pages, or empty.

    Clauses: RFC 6749 §3.1, §3.1.1, §3.3, §4.1.1, §4.1.2.1, SPEC §4.1
    """
    for name, reason in query.mistakes.items():
        raise InvalidRequest(reason, name=name)
    if len(msgspec.json.encode(return_address.state)) > MAX_STATE_BYTES + len('""'):
        raise InvalidRequest("state_too_long")
    if "response_type" not in query.values:
        raise InvalidRequest("parameter_missing", name="response_type")
    if query.values["response_type"] != "code":
        raise UnsupportedResponseType("response_type_unknown")
    check_grant_type(client, AUTHORIZATION_CODE)
    return AuthorizationRequest(
        client_id=client.client_id,
        return_address=return_address,
        code_challenge=_read_code_challenge(query, client),
        scope=str(_read_scope(query, client)),
        language=language,
    )


def read_max_login_age_ms(query: Query) -> int | None:
    """Return the maximum age of the user's login in milliseconds. 0 demands a new login, and None allows any age.

    Raises InvalidRequest if `max_age` is malformed. Raises AccessDenied if `prompt` contains `none`, with or without
    other values: no request is granted without a page. Unknown values of `prompt` are ignored.

    Clauses: OpenID Connect Core 1.0 §3.1.2.1
    """
    max_age = query.values.get("max_age")
    if max_age is not None and not SECONDS.fullmatch(max_age):
        raise InvalidRequest("max_age_malformed")
    prompts = query.values.get("prompt", "").split(" ")
    if "none" in prompts:
        raise AccessDenied("prompt_none")
    if "login" in prompts:
        return 0
    return None if max_age is None else int(max_age) * 1000


def make_query(request: AuthorizationRequest, *, force_login: bool = False) -> str:
    """Return a query string that `parse_authorization_request` parses to this request.

    With `force_login`, the query demands a new login.

    Clauses: RFC 6749 §4.1.1, RFC 7636 §4.3
    """
    parameters = {
        "response_type": "code",
        "client_id": request.client_id,
        "redirect_uri": request.return_address.redirect_uri,
        "state": request.return_address.state,
        "scope": request.scope,
        "code_challenge": request.code_challenge,
        "code_challenge_method": request.code_challenge and "S256",
        "ui_locales": request.language,
        "prompt": "login" if force_login else None,
    }
    return urlencode({name: value for name, value in parameters.items() if value})


def _read_code_challenge(query: Query, client: Client) -> str | None:
    """Return the code_challenge, or None if the request does without PKCE.

    Raises InvalidRequest if the challenge is malformed, or missing although the client must use PKCE.

    Clauses: RFC 7636 §4.2, §4.3, §4.4.1, §7.2
    """
    code_challenge, method = query.values.get("code_challenge"), query.values.get("code_challenge_method")
    if code_challenge is None and method is None:
        if client.require_pkce:
            raise InvalidRequest("code_challenge_missing")
        return None
    if method != "S256":
        raise InvalidRequest("code_challenge_method_unsupported")
    if code_challenge is None or not S256_CHALLENGE.fullmatch(code_challenge):
        raise InvalidRequest("code_challenge_malformed")
    return code_challenge


def _read_scope(query: Query, client: Client) -> Scope:
    """Return the requested scope, or the client's default scope if none is requested.

    Raises InvalidScope unless it has a role, at most one realm, and only items that the client may request.

    Clauses: RFC 6749 §3.3 (a default where none is asked for), SPEC §2.2
    """
    text = query.values.get("scope") or client.default_scope
    if not text:
        raise InvalidScope("scope_without_default")
    scope = parse_scope(text)
    if len(scope.realms) > 1:
        raise InvalidScope("scope_of_two_realms")
    if not scope.roles:
        raise InvalidScope("scope_without_role")
    check_scope(client, scope)
    return scope


def list_open_realms(request: AuthorizationRequest, client: Client, realms: Sequence[str]) -> Sequence[str]:
    """Return those of `realms` that the request accepts. Raises InvalidScope if there is none.

    `realms` are the realms that have a login. A request that names no realm accepts every realm that the client may
    request.

    Clauses: SPEC §2.2, §5.4
    """
    named = parse_scope(request.scope).realms or client.allowed_scope.realms
    found = [realm for realm in realms if realm in named]
    if not found:
        raise InvalidScope("realm_without_login", name=str(Scope(frozenset(f"realm:{realm}" for realm in named))))
    return found


def make_consent_request(request: AuthorizationRequest, realm: str, roles: Collection[str]) -> ConsentRequest:
    """Return the consent request: the requested roles that the user has, in the realm of the login.

    Raises AccessDenied if the user has none of the requested roles.

    Clauses: RFC 6749 §3.3, §4.1.2.1 (access_denied), SPEC §2.2, §4.1
    """
    granted = [role for role in parse_scope(request.scope).roles if role in roles]
    if not granted:
        raise AccessDenied("user_without_role")
    scope = Scope(frozenset({f"realm:{realm}", *(f"role:{role}" for role in granted)}))
    return ConsentRequest(request=request, scope=str(scope))


def recheck_registration(request: AuthorizationRequest, scope: str, client: Client | None) -> Client:
    """Return the client, after a new check that it may receive `scope` for this request.

    The registration may have changed while the user was deciding. If the client or its redirect_uri is no longer
    registered, raises InvalidRequest, which is shown as a page. If the client may no longer use the grant
    type or the scope, or must now use PKCE, raises AuthorizationRefused.

    Clauses: RFC 6749 §3.1.2.4, §5.2
    """
    client = require_registered(client)
    if not is_registered(client, request.return_address.redirect_uri):
        raise InvalidRequest("redirect_uri_unregistered")
    with redirecting_oauth_errors_to(request.return_address):
        check_grant_type(client, AUTHORIZATION_CODE)
        check_scope(client, parse_scope(scope))
        if client.require_pkce and request.code_challenge is None:
            raise InvalidRequest("code_challenge_missing")
    return client


def make_location(return_address: ReturnAddress, issuer: str, answer: Mapping[str, str]) -> str:
    """Return the redirect_uri with the response parameters, `state` and `iss` appended to its query.

    The query of the redirect_uri and the value of `state` are unchanged.

    Clauses: RFC 6749 §3.1.2, §4.1.2, §4.1.2.1, §10.14, RFC 9207 §2
    """
    state = {} if return_address.state is None else {"state": return_address.state}
    separator = "&" if "?" in return_address.redirect_uri else "?"
    return return_address.redirect_uri + separator + urlencode({**answer, **state, "iss": issuer})


def _read_once(query: Query, name: str) -> str:
    if name in query.mistakes:
        raise InvalidRequest(query.mistakes[name], name=name)
    if name not in query.values:
        raise InvalidRequest("parameter_missing", name=name)
    return query.values[name]
