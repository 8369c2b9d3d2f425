"""A login in any realm: throttled first, then checked by the realm.

Clauses: RFC 6749 §4.3.2, §10.10, RFC 6819 §5.1.4.2.3
"""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from service.protocol.errors import InvalidGrant, InvalidScope, LoginThrottled, TemporarilyUnavailable
from service.protocol.provider_responses import CodeRejected, LoginRefused, ProviderRejected
from service.protocol.scope import MAIN_REALM
from service.protocol.user import MAX_USERNAME_CHARACTERS, User, UserIdentity, identify_user
from service.realms.external import ExternalRealm, ExternalRealms
from service.realms.main import MainRealm
from service.store.attempts import Attempts, Counter, Exhausted, Prefix, Prefixes, make_address_counters
from service.store.keys import login_key


class Realm(Protocol):
    """`log_in` and `find_user` say who a user is; the name that was typed does not."""

    def check_room(self, network: str) -> None:
        """Raise TemporarilyUnavailable where the realm cannot take one more check from this network at the moment."""

    async def log_in(self, username: str, password: str, network: str) -> User:
        """Return the user; raise InvalidGrant where the credentials are wrong."""

    async def find_user(self, username: str) -> User | None:
        """Who logged in here before, as the realm knows them now; None where they may not log in any more."""


@dataclass(frozen=True, slots=True)
class AllowedAttempts:
    """Failed checks and the window in milliseconds: per user name and address, per user name, per address."""

    per_user_and_address: tuple[int, int]
    per_user: tuple[int, int]
    per_address: tuple[int, int]


class Logins:
    def __init__(self, main: MainRealm, external: ExternalRealms, attempts: Attempts, allowed: AllowedAttempts) -> None:
        self._main = main
        self._external = external
        self._attempts = attempts
        self._allowed = allowed

    async def list_realm_names(self) -> list[str]:
        """The realms that somebody can log in to here."""
        return [MAIN_REALM, *await self._external.list_names()]

    async def get_external_realm(self, realm: str) -> ExternalRealm:
        """Raises InvalidScope for a realm that no organisation stands behind."""
        found = await self._external.find(realm)
        if found is None:
            raise InvalidScope("realm_without_login")
        return found

    async def find_user(self, realm: str, username: str) -> User | None:
        """None where the user may not log in any more, or the realm is none that we know."""
        found = await self._find_realm(realm)
        return None if found is None else await found.find_user(username)

    async def read_user(self, identity: UserIdentity) -> User | None:
        """The record of a user of realm main, read from Redis, so that an unknown name costs what a known one does."""
        return await self._main.read_user(identity)

    async def log_in(self, realm: str, username: str, password: str, prefixes: Prefixes, device: str = "") -> User:
        """The user, or InvalidGrant; past a limit nothing is checked: LoginThrottled.

        `device` names a browser in which this user has logged in before.
        """
        checker = await self._find_realm(realm)
        if checker is None:
            raise InvalidScope("realm_without_login")
        network = prefixes[-1].network
        checker.check_room(network)
        of_user, of_address = self._make_counters(realm, username, prefixes, device)
        try:
            # The user first: who waits for a user must not take up room of an address that others share.
            checking = self._attempts.checking(of_user, of_address, failure=InvalidGrant)
            async with checking, self.sparing(realm, prefixes, username):
                return await checker.log_in(username, password, network)
        except Exhausted as error:
            raise LoginThrottled("login_throttled", retry_after_seconds=error.wait_seconds) from None

    @asynccontextmanager
    async def sparing(self, realm: str, prefixes: Prefixes, username: str = "") -> AsyncIterator[None]:
        """Limit what an organisation refuses otherwise than as a wrong password, such as a made-up code.

        Such a refusal uses up no attempts, but it may hide a wrong password. So it has the limits of guesses, with
        counters of its own: per address, and per user name where one was typed.
        """
        if realm == MAIN_REALM:
            yield
            return
        of_address = make_address_counters("refused", prefixes, self._allowed.per_address, realm)
        of_user = [Counter(login_key(identify_user(realm, _fold(username)), "refused"), *self._allowed.per_user)]
        try:
            async with AsyncExitStack() as checking:
                if username:
                    await checking.enter_async_context(self._attempts.checking(of_user, failure=LoginRefused))
                refusals = (ProviderRejected, CodeRejected)
                await checking.enter_async_context(self._attempts.checking(of_address, failure=refusals))
                yield
        except Exhausted as error:
            raise TemporarilyUnavailable("organisation_spared", retry_after_seconds=error.wait_seconds) from None

    async def _find_realm(self, realm: str) -> Realm | None:
        return self._main if realm == MAIN_REALM else await self._external.find(realm)

    def _make_counters(
        self, realm: str, username: str, prefixes: Prefixes, device: str
    ) -> tuple[Sequence[Counter], Sequence[Counter]]:
        """Two groups, since the keys of an address and of a user lie in different slots.

        A known device has counters of its own, or strangers could lock a user out by failing in their name. Each realm
        has its own, so that an organisation which keeps logins waiting holds up nobody of another realm. What an
        organisation may take for one name counts as one.
        """
        identity = identify_user(realm, username if realm == MAIN_REALM else _fold(username))
        most, window_ms = self._allowed.per_user_and_address
        places, everywhere = prefixes, ""
        if device:
            places, everywhere = (Prefix(f"device {device}", 1),), f"device {device} long"
        here = [Counter(login_key(identity, place), factor * most, window_ms) for place, factor in places]
        return (
            [*here, Counter(login_key(identity, everywhere), *self._allowed.per_user)],
            make_address_counters("login", prefixes, self._allowed.per_address, realm),
        )


def _fold(username: str) -> str:
    """Longer names than any user has count by their beginning: normalizing takes time that grows with the square."""
    username = username[: MAX_USERNAME_CHARACTERS + 1]
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", username).casefold()).strip()
