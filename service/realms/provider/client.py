"""The client of an identity provider: its metadata, its token endpoint, and the identity behind a token.

Clauses: RFC 6749 §2.3.1, §4.1.3, §4.3.2, RFC 6750 §2.1, RFC 7636 §4.5, RFC 7662 §2.1, RFC 8414 §3, SPEC §2.2
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote_plus, urlencode

from joserfc.jwk import KeySet

from service.protocol import provider_responses
from service.protocol.errors import InvalidRequest
from service.protocol.logout_token import LogoutToken
from service.protocol.provider import IdentityProvider, ProviderEndpoints, list_metadata_addresses
from service.protocol.provider_responses import Claims, ExternalIdentity, InvalidProviderResponse, ProviderTokens
from service.realms.provider.http_client import HttpClient, HttpResponse
from service.realms.provider.id_token import Expectation, UnknownKey, parse_keys, read_sid, verify_id_token
from service.realms.provider.logout_token import check_signature, parse_logout_token

METADATA_SECONDS: Final = 3600.0
KEYS_SECONDS: Final = 600.0
NEW_KEYS_SECONDS: Final = 5.0
"""The age from which keys are fetched again because no known key has signed a token. Strangers can cause that."""

_NOT_FOUND: Final = 404

Thing = TypeVar("Thing")
Calling = Callable[[], AbstractAsyncContextManager[None]]


class _TimedCache(Generic[Thing]):
    """A value that an identity provider publishes. It is fetched again when it is older than a caller accepts."""

    def __init__(self, fetch: Callable[[], Awaitable[Thing]]) -> None:
        self._fetch = fetch
        self._fetching = asyncio.Lock()
        self._known: tuple[float, Thing] | None = None

    async def find(self, most_seconds: float, calling: Calling = nullcontext) -> Thing:
        """Return the value, fetched again if it is older than `most_seconds`. Only one caller fetches at a time.

        A caller that accepts the known value does not wait for the fetch of another. The wait and the fetch are made
        within a block of `calling`.
        """
        if (thing := self._get_fresh(most_seconds)) is not None:
            return thing
        async with calling(), self._fetching:
            thing = self._get_fresh(most_seconds)
            if thing is None:
                asked_at = time.monotonic()
                thing = await self._fetch()
                self._known = (asked_at, thing)
        return thing

    def _get_fresh(self, most_seconds: float) -> Thing | None:
        is_fresh = self._known is not None and time.monotonic() - self._known[0] <= most_seconds
        return self._known[1] if self._known is not None and is_fresh else None


@dataclass
class ProviderClient:
    """The client of one identity provider, with our registration there.

    Methods raise ProviderError if the identity provider refuses a request with an error code, and
    InvalidProviderResponse for any other failure.
    `client_secret` is empty for a public client, and None if none of our keys decrypts the stored secret.
    `read_clock_ms` returns Redis time: a worker with a wrong clock must not take an ID token for too old.
    """

    _provider: IdentityProvider
    _client_secret: str | None
    _http_client: HttpClient
    _read_clock_ms: Callable[[], Awaitable[int]]

    def __post_init__(self) -> None:
        self._server = _TimedCache(self._fetch_server)
        self._keys = _TimedCache(self._fetch_keys)

    async def get_endpoints(self, calling: Calling = nullcontext) -> ProviderEndpoints:
        """Return the endpoints. If they must be fetched, that is done within a block of `calling`."""
        if not self._provider.needs_metadata:
            return provider_responses.get_endpoints(self._provider, None)
        return await self._server.find(METADATA_SECONDS, calling)

    async def request_tokens(self, grant_type: str, **form: str) -> ProviderTokens:
        """Request tokens. A parameter without a value is left out.

        Clauses: RFC 6749 §4.1.3, §4.3.2, RFC 7636 §4.5
        """
        server = await self.get_endpoints()
        form = {name: value for name, value in form.items() if value}
        answer = await self._post(server.token_endpoint, server, {"grant_type": grant_type, **form})
        return provider_responses.parse_token_response(answer.status, answer.body)

    async def identify(self, tokens: ProviderTokens, nonce: str | None) -> ExternalIdentity:
        """Return the identity behind the tokens: from the ID token if it can be checked, userinfo, or introspection.

        A claim that the ID token lacks is taken from userinfo, which must name the same subject. A nonce means a login
        in a browser, for which OpenID Connect always issues an ID token; a missing one is then refused.
        """
        server = await self.get_endpoints()
        claims: Claims | None = None
        if server.can_check_id_tokens and (tokens.id_token or nonce is not None or not server.has_other_source):
            claims = await self._read_id_token(tokens.id_token, server, nonce)
        sid = "" if claims is None else read_sid(claims)
        username_claim, is_email = self._provider.username_claim, self._provider.needs_verified_email
        needed = {username_claim, "email_verified"} if is_email else {username_claim}
        if server.userinfo_endpoint and (claims is None or not needed <= claims.keys()):
            claims = _join(claims, await self._ask_userinfo(server, tokens))
        elif claims is None:
            claims = await self._introspect(server, tokens)
        person = provider_responses.read_person(claims, username_claim, needs_verified_email=is_email)
        return person._replace(sid=sid)

    async def _ask_userinfo(self, server: ProviderEndpoints, tokens: ProviderTokens) -> Claims:
        """Clauses: RFC 6750 §2.1, OpenID Connect Core 1.0 §5.3"""
        headers = {"Authorization": f"Bearer {tokens.access_token}"}
        answer = await self._http_client.get(server.userinfo_endpoint, headers)
        return provider_responses.parse_claims(answer.status, answer.body, "its userinfo")

    async def _introspect(self, server: ProviderEndpoints, tokens: ProviderTokens) -> Claims:
        """Clauses: RFC 7662 §2.1, §2.2"""
        answer = await self._post(server.introspection_endpoint, server, {"token": tokens.access_token})
        claims = provider_responses.parse_claims(answer.status, answer.body, "its introspection")
        provider_responses.check_active(claims)
        return claims

    async def _read_id_token(self, text: str | None, server: ProviderEndpoints, nonce: str | None) -> Claims:
        """Return the verified claims of the ID token.

        If no known key has signed it, the keys are fetched once more, because an identity provider changes its keys.
        """
        if not text:
            raise InvalidProviderResponse("its token response has no ID token")
        expected = await self._expect(server, nonce)
        for max_age_seconds in (KEYS_SECONDS, NEW_KEYS_SECONDS):
            with suppress(UnknownKey):
                return verify_id_token(text, await self._keys.find(max_age_seconds), expected)
        raise InvalidProviderResponse("its ID token is signed with a key that it does not publish")

    async def read_logout_token(self, text: str, calling: Calling) -> LogoutToken:
        """Return the verified content of a logout token. Raises InvalidRequest if the token or the realm is not right.

        Each call of the identity provider is made within a block of `calling`.

        Clauses: OpenID Connect Back-Channel Logout 1.0 §2.6
        """
        server = await self.get_endpoints(calling) if self._provider.names_users_by_sub else None
        if server is None or not self._provider.accepts_logouts(server):
            raise InvalidRequest("realm_without_logout", status=404)
        signed, token = parse_logout_token(text, await self._expect(server, None))
        for max_age_seconds in (KEYS_SECONDS, NEW_KEYS_SECONDS):
            keys = await self._keys.find(max_age_seconds, calling)
            with suppress(UnknownKey):
                check_signature(signed, keys)
                return token
        raise InvalidRequest("logout_token_signature_wrong")

    async def _expect(self, server: ProviderEndpoints, nonce: str | None) -> Expectation:
        now_ms = await self._read_clock_ms()
        return Expectation(server.issuer, self._provider.client_id, nonce, now_seconds=now_ms // 1000)

    async def _fetch_server(self) -> ProviderEndpoints:
        provider = self._provider
        addresses = list_metadata_addresses(provider.issuer, openid=provider.speaks_openid)
        for address in addresses:
            answer = await self._http_client.get(address, {})
            if answer.status != _NOT_FOUND:
                provider_responses.check_ok(answer.status, "its metadata")
                metadata = provider_responses.parse_metadata(answer.body, provider.issuer)
                return provider_responses.get_endpoints(provider, metadata)
        where = " or ".join(addresses)
        raise InvalidProviderResponse(
            f"it publishes no metadata at {where}, and the seed file does not list all of its endpoints"
        )

    async def _fetch_keys(self) -> KeySet:
        server = await self.get_endpoints()
        answer = await self._http_client.get(server.jwks_uri, {})
        provider_responses.check_ok(answer.status, "its key set")
        return parse_keys(provider_responses.parse_json(answer.body, dict[str, Any], "its key set"))

    async def _post(self, address: str, server: ProviderEndpoints, form: Mapping[str, str]) -> HttpResponse:
        """Clauses: RFC 6749 §2.3.1"""
        client_id, headers = self._provider.client_id, {}
        if self._client_secret is None:
            raise InvalidProviderResponse(
                "our client secret is encrypted with a secret key that is not configured; apply the seed again"
            )
        if not self._client_secret:
            form = {**form, "client_id": client_id}
        elif server.secret_in_body:
            form = {**form, "client_id": client_id, "client_secret": self._client_secret}
        else:
            credentials = f"{quote_plus(client_id)}:{quote_plus(self._client_secret)}"
            headers = {"Authorization": "Basic " + b64encode(credentials.encode()).decode()}
        return await self._http_client.post(address, headers, urlencode(form).encode())


def _join(id_token: Claims | None, userinfo: Claims) -> Claims:
    """Return the claims of both documents. The ID token takes precedence over userinfo.

    `email` and `email_verified` come from the same document, because neither vouches for the other's address.

    Clauses: OpenID Connect Core 1.0 §5.3.2 (sub is the same, or userinfo is not used)
    """
    if id_token is None:
        return userinfo
    if userinfo.get("sub") != id_token["sub"]:
        raise InvalidProviderResponse("its userinfo and its ID token are for different users")
    address = userinfo if userinfo.get("email") else id_token
    return {**userinfo, **id_token, **{name: address.get(name) for name in ("email", "email_verified")}}
