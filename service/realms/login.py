"""Logins in all realms: each login is throttled first, then checked by its realm.

Clauses: RFC 6749 §4.3.2, §10.10, RFC 6819 §5.1.4.2.3
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from service.config.settings import Settings
from service.protocol.authorization import AuthorizationRequest, list_open_realms
from service.protocol.client import Client
from service.protocol.errors import InvalidGrant, InvalidScope, LoginThrottled, OAuthError, TemporarilyUnavailable
from service.protocol.provider_responses import CodeRejected, LoginRefused, ProviderRejected
from service.protocol.scope import MAIN_REALM, REALMS
from service.protocol.token_form import digest_token
from service.protocol.user import Login, User, identify_for_throttle
from service.realms.external import ExternalRealm, ExternalRealms
from service.realms.main import MainRealm
from service.registry.seed_file.keeper import SeedKeeper
from service.store.attempts import Attempts, Counter, Exhausted, Prefix, Prefixes, make_address_counters
from service.store.keys import login_key


@dataclass(frozen=True, slots=True)
class Logins:
    """Logins of users. No refusal is final without `seed_keeper`, because the seed may bring what is missing."""

    _main: MainRealm
    _external: ExternalRealms
    _attempts: Attempts
    _settings: Settings
    seed_keeper: SeedKeeper

    async def list_realm_names(self) -> list[str]:
        """Return the names of the realms in which users can log in."""
        return [MAIN_REALM, *await self._external.list_names()]

    async def list_open_realms(self, request: AuthorizationRequest, client: Client) -> Sequence[str]:
        """Return the realms that the request accepts and that have a login. Raises InvalidScope if there is none."""
        async with self.seed_keeper.required():
            return list_open_realms(request, client, await self.list_realm_names())

    async def get_realm_of(self, issuer: str) -> str:
        """Return the name of the realm whose users this issuer names by their `sub`, or raise InvalidRequest."""
        async with self.seed_keeper.required():
            return await self._external.get_realm_of(issuer)

    async def get_external_realm(self, realm: str, refusal: OAuthError | None = None) -> ExternalRealm:
        """Return the external realm. Raises the refusal, or InvalidScope, if the realm has no identity provider."""
        async with self.seed_keeper.required():
            found = await self._external.find(realm) if realm in REALMS else None
            if found is None:
                raise refusal or InvalidScope("realm_without_login", name=f"realm:{realm}")
            return found

    async def find_user(self, realm: str, username: str) -> User | None:
        """Return the user, or None if they may no longer log in or the realm is unknown."""
        found: MainRealm | ExternalRealm | None = (
            self._main if realm == MAIN_REALM else await self._external.find(realm)
        )
        return None if found is None else await found.find_user(username)

    async def log_in(self, realm: str, username: str, password: str, prefixes: Prefixes, device: str = "") -> Login:
        """Return the login if the realm accepts the credentials. Raises InvalidGrant if they are wrong.

        `device` names a browser in which this user has logged in before. Raises LoginThrottled, without a check, if a
        limit is reached.
        """
        checker: MainRealm | ExternalRealm = self._main if realm == MAIN_REALM else await self.get_external_realm(realm)
        network = prefixes[-1].network
        of_user, of_address = self._make_counters(realm, username, prefixes, device)
        try:
            # The counters of the user come first: a caller that waits for them must not hold an attempt of an address
            # that other callers share.
            checking = self._attempts.checking(of_user, of_address, failure=InvalidGrant)
            async with (
                self.seed_keeper.required(),
                checking as marked_ms,
                self.limiting_refusals(realm, prefixes, username),
            ):
                # In realm main the user is known, so a later mark is one that was set during the login.
                begun_ms = marked_ms + 1 if realm == MAIN_REALM else await self._external.read_clock_ms()
                return await checker.log_in(username, password, network, begun_ms)
        except Exhausted as error:
            user = await self._main.find_registered(username) if realm == MAIN_REALM else None
            raise LoginThrottled("login_throttled", user=user, retry_after_seconds=error.wait_seconds) from None

    @asynccontextmanager
    async def limiting_refusals(self, realm: str, prefixes: Prefixes, username: str = "") -> AsyncIterator[None]:
        """Limit requests that an identity provider refuses for another reason than a wrong password.

        An example is a made-up code. Such a refusal uses up no login attempts, but it may hide a wrong password. It
        therefore has the limits of guesses with its own counters: per address, and per user name if one was typed.
        Raises TemporarilyUnavailable if a limit is reached. Realm main is not limited here.
        """
        if realm == MAIN_REALM:
            yield
            return
        of_address = make_address_counters("refused", prefixes, self._settings.login_attempts_per_address, realm)
        identity = identify_for_throttle(realm, username)
        of_user = [Counter(login_key(identity, "provider"), *self._settings.login_attempts_per_user)]
        try:
            async with AsyncExitStack() as checking:
                if username:
                    await checking.enter_async_context(self._attempts.checking(of_user, failure=LoginRefused))
                refusals = (ProviderRejected, CodeRejected)
                await checking.enter_async_context(self._attempts.checking(of_address, failure=refusals))
                yield
        except Exhausted as error:
            raise TemporarilyUnavailable("provider_throttled", retry_after_seconds=error.wait_seconds) from None

    def _make_counters(
        self, realm: str, username: str, prefixes: Prefixes, device: str
    ) -> tuple[Sequence[Counter], Sequence[Counter]]:
        """Return the counters of the user and those of the address.

        They are two groups, because the keys of an address and of a user lie in different slots. A known device has its
        own counters; otherwise strangers could lock a user out by failing under the user's name. Each realm has its own
        counters, so that a slow identity provider delays no login of another realm. Spellings that an identity provider
        may treat as one name count as one.
        """
        identity = identify_for_throttle(realm, username)
        most, window_ms = self._settings.login_attempts
        places, everywhere = prefixes, ""
        if device:
            browser = f"browser {digest_token(device)}"
            places, everywhere = (Prefix(browser, 1),), f"{browser} in the long run"
        here = [Counter(login_key(identity, place), factor * most, window_ms) for place, factor in places]
        return (
            [*here, Counter(login_key(identity, everywhere), *self._settings.login_attempts_per_user)],
            make_address_counters("login", prefixes, self._settings.login_attempts_per_address, realm),
        )
