"""External realms: users who log in at an identity provider, with the password grant or in their browser.

The identity provider decides who a user is, never the name that was typed. A user that the registry does not list has
the realm's default roles.

Clauses: RFC 6749 §4.1, §4.3.2, §10.12, RFC 6819 §5.1.4.1.3, RFC 7636 §4.3, SPEC §2.2
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from service.crypto.keyring import Keyring
from service.gateway.outage_log import OutageLog
from service.protocol import provider_responses
from service.protocol.authorization import Query
from service.protocol.authorization_code import make_code_challenge
from service.protocol.errors import AccessDenied, InvalidGrant, InvalidRequest, OAuthError, TemporarilyUnavailable
from service.protocol.logout_token import LogoutToken
from service.protocol.provider import IdentityProvider
from service.protocol.provider_responses import CodeRejected, ExternalIdentity, InvalidProviderResponse, ProviderError
from service.protocol.scope import MAIN_REALM, REALMS
from service.protocol.user import Login, User, digest_sid, identify_user
from service.realms.provider.circuit_breaker import CircuitBreaker
from service.registry.cache import RealmCache, UserCache

if TYPE_CHECKING:
    from service.realms.provider.client import ProviderClient
    from service.realms.provider.http_client import HttpClient

log = logging.getLogger("service.realms")


class LoginBinding(NamedTuple):
    """The secrets of a browser that bind a login at the identity provider to this browser."""

    state: str
    nonce: str
    code_verifier: str


@dataclass(eq=False)
class ExternalRealm:
    """An external realm in its present configuration."""

    name: str
    provider: IdentityProvider
    _provider_client: ProviderClient
    _realms: ExternalRealms

    def __post_init__(self) -> None:
        self._breaker = CircuitBreaker()
        self._report = OutageLog(log, f"the identity provider of realm {self.name} is unavailable")
        # Anybody can send a logout token that needs the provider's keys. Their failures refuse no login.
        self._logout_breaker = CircuitBreaker()
        self._logout_report = OutageLog(log, f"cannot fetch the provider's keys for logout tokens of realm {self.name}")

    @property
    def label(self) -> str:
        """The name of the realm for people to read."""
        return self.provider.name or self.name

    async def log_in(self, username: str, password: str, network: str, begun_ms: int) -> Login:
        """Return the login if the identity provider accepts the password. Raises InvalidGrant if the login is refused.

        The identity provider's tokens serve only to identify the user, and are then discarded.

        Clauses: RFC 6749 §4.3.2
        """
        form = {"username": username, "password": password, "scope": self.provider.scope}
        async with self._calling(with_password=True):
            identity = await self._identify("password", form, None, refusal=InvalidGrant("password_wrong"))
        disabled = InvalidGrant("user_disabled", user=User(realm=self.name, username=identity.username))
        return await self._admit(identity, begun_ms, InvalidGrant("provider_doubts_email"), disabled)

    async def make_authorization_address(self, binding: LoginBinding, redirect_uri: str, *, force_login: bool) -> str:
        """Return the address of the authorization request to which the browser is redirected.

        `force_login` asks for a login even if the user is still logged in at the identity provider.

        Clauses: RFC 6749 §4.1.1, RFC 7636 §4.3, OpenID Connect Core 1.0 §3.1.2.1
        """
        server = await self._provider_client.get_endpoints(self._calling)
        parameters = {
            "response_type": "code",
            "client_id": self.provider.client_id,
            "redirect_uri": redirect_uri,
            "scope": self.provider.scope,
            "state": binding.state,
            "nonce": binding.nonce if self.provider.speaks_openid else "",
            "code_challenge": make_code_challenge(binding.code_verifier),
            "code_challenge_method": "S256",
            "prompt": "login" if force_login else "",
        }
        separator = "&" if "?" in server.authorization_endpoint else "?"
        query = urlencode({name: value for name, value in parameters.items() if value})
        return server.authorization_endpoint + separator + query

    async def finish(self, answer: Query, binding: LoginBinding, redirect_uri: str, begun_ms: int) -> Login:
        """Complete a login with the authorization response that the browser brought.

        Raises AccessDenied if the identity provider or our own record of the user refuses the login.

        Clauses: RFC 6749 §4.1.2, §4.1.3, §4.1.4
        """
        server = await self._provider_client.get_endpoints(self._calling)
        try:
            code = provider_responses.read_callback(answer, server)
        except InvalidProviderResponse as problem:
            # A response that a browser brings says nothing about the state of the identity provider.
            raise _report_problem(self._report, problem) from None
        form = {"code": code, "redirect_uri": redirect_uri, "code_verifier": binding.code_verifier}
        nonce = binding.nonce if self.provider.speaks_openid else None
        async with self._calling():
            identity = await self._identify("authorization_code", form, nonce, refusal=CodeRejected("provider_denied"))
        disabled = AccessDenied("user_not_admitted", user=User(realm=self.name, username=identity.username))
        return await self._admit(identity, begun_ms, AccessDenied("email_not_verified"), disabled)

    async def read_logout_token(self, text: str) -> LogoutToken:
        """Return the verified content of a logout token. Raises InvalidRequest if it is refused.

        Clauses: OpenID Connect Back-Channel Logout 1.0 §2.6
        """
        return await self._provider_client.read_logout_token(text, partial(self._calling, is_logout=True))

    async def find_user(self, username: str) -> User | None:
        """Return the user, or None if they are disabled. A user that the registry does not list has default roles."""
        listed = await self._realms.find_user(self.name, username)
        user = listed or self.provider.make_unlisted_user(self.name, username)
        return None if user.disabled else user

    async def _identify(
        self, grant_type: str, form: Mapping[str, str], nonce: str | None, *, refusal: OAuthError
    ) -> ExternalIdentity:
        """Return the user whom the identity provider names for the form. Raises `refusal` if it refuses the grant."""
        try:
            tokens = await self._provider_client.request_tokens(grant_type, **form)
        except ProviderError as error:
            if error.error == "invalid_grant":
                raise refusal from None
            raise
        return await self._provider_client.identify(tokens, nonce)

    async def _admit(
        self, identity: ExternalIdentity, begun_ms: int, unverified: OAuthError, disabled: OAuthError
    ) -> Login:
        """Return the login. Raises one of the refusals if the address is not verified, or the user is disabled.

        Raises TemporarilyUnavailable if the realm was reconfigured while the identity provider was asked.
        """
        if identity.email_unverified:
            raise unverified
        if await self._realms.find(self.name) is not self:
            raise provider_responses.make_unavailable()
        user = await self.find_user(identity.username)
        if user is None:
            raise disabled
        return Login(user, begun_ms, digest_sid(self.name, identity.sid), identity.name)

    @asynccontextmanager
    async def _calling(self, *, with_password: bool = False, is_logout: bool = False) -> AsyncIterator[None]:
        """Run the body as one call of the identity provider, which passes a circuit breaker.

        The use of known endpoints is no call, because it does not show that the identity provider works.
        """
        breaker, report = self._breaker, self._report
        if is_logout:
            breaker, report = self._logout_breaker, self._logout_report
        try:
            async with breaker.guard():
                yield
        except TemporarilyUnavailable:
            report.count()
            raise
        except (InvalidProviderResponse, ProviderError) as problem:
            raise _report_problem(report, problem, with_password=with_password) from None
        except (InvalidGrant, AccessDenied):
            report.report_recovery()
            raise
        report.report_recovery()


def _report_problem(report: OutageLog, problem: Exception, *, with_password: bool = False) -> TemporarilyUnavailable:
    """Log the problem, and return an error which only says that the identity provider is unavailable."""
    report.log_error(problem)
    return provider_responses.make_refusal(problem, with_password=with_password)


@dataclass(slots=True)
class ExternalRealms:
    """The external realms of the registry. A realm gets a new object when its record changes.

    The client of identity providers is imported with the first realm. Its libraries take 8 MiB of a worker.
    """

    _records: RealmCache
    _users: UserCache
    _keyring: Keyring
    read_clock_ms: Callable[[], Awaitable[int]]
    _realms: dict[str, ExternalRealm] = field(default_factory=dict, init=False)
    _http_client: HttpClient | None = field(default=None, init=False)

    async def close(self) -> None:
        if self._http_client is not None:
            await self._http_client.close()

    async def list_names(self) -> list[str]:
        """Return the names of the external realms that are configured and that a scope can name."""
        return [name for name in REALMS if name != MAIN_REALM and await self._records.find(name) is not None]

    async def find(self, name: str) -> ExternalRealm | None:
        """Return the realm, or None if it is not configured. The object stays the same until its record changes."""
        record = await self._records.find(name)
        if record is not None and self._http_client is None:
            await self.load_clients()
            record = await self._records.find(name)  # the record may have changed during the attempt
        if record is None or self._http_client is None:
            self._realms.pop(name, None)
            return None
        realm = self._realms.get(name)
        if realm is None or realm.provider != record:
            realm = self._realms[name] = self._make(name, record, self._http_client)
        return realm

    async def get_realm_of(self, issuer: str) -> str:
        """Return the name of the realm whose users this issuer names by their `sub`, or raise InvalidRequest."""
        for name in REALMS:
            record = await self._records.find(name) if name != MAIN_REALM else None
            if record is not None and (record.issuer, record.username_claim) == (issuer, "sub"):
                return name
        raise InvalidRequest("issuer_unknown")

    async def find_user(self, realm: str, username: str) -> User | None:
        """Return the user as the registry lists them, or None if it does not."""
        return await self._users.find(identify_user(realm, username))

    def _make(self, name: str, provider: IdentityProvider, http_client: HttpClient) -> ExternalRealm:
        from service.realms.provider.client import ProviderClient

        sealed = provider.sealed_secret
        client_secret = self._keyring.open_sealed_text(f"realm:{name}", sealed) if sealed else ""
        return ExternalRealm(
            name, provider, ProviderClient(provider, client_secret, http_client, self.read_clock_ms), self
        )

    async def load_clients(self) -> None:
        """Import the client of identity providers in a thread: on the event loop, all requests would wait."""
        await asyncio.to_thread(import_module, "service.realms.provider.client")
        if self._http_client is None:
            from service.realms.provider.http_client import HttpClient

            self._http_client = HttpClient()
