"""A login in any realm: throttled first, then checked by the realm.

Clauses: RFC 6749 §4.3.2, §10.10, RFC 6819 §5.1.4.2.3
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from service.protocol.errors import InvalidGrant, InvalidScope, LoginThrottled
from service.protocol.user import User, identify_user
from service.store.attempts import Attempts, Counter, Exhausted
from service.store.keys import address_key, login_key


class Realm(Protocol):
    def check_room(self) -> None:
        """Raises TemporarilyUnavailable where the realm is too busy to take one more check."""

    async def log_in(self, username: str, password: str) -> User:
        """Raises InvalidGrant where the credentials are wrong."""

    async def find_user(self, username: str) -> User | None:
        """Who logged in here before, as the realm knows them now; None where they may not log in any more."""


@dataclass(frozen=True, slots=True)
class AllowedAttempts:
    """Failed checks and the window in milliseconds: per user name and address, per user name, per address."""

    per_user_and_address: tuple[int, int]
    per_user: tuple[int, int]
    per_address: tuple[int, int]


class Logins:
    def __init__(self, realms: Mapping[str, Realm], attempts: Attempts, allowed: AllowedAttempts) -> None:
        self._realms = realms
        self._attempts = attempts
        self._allowed = allowed

    @property
    def realm_names(self) -> tuple[str, ...]:
        """The realms that somebody can log in to here."""
        return tuple(self._realms)

    def find_realm(self, realm: str) -> Realm:
        """Raises InvalidScope for a realm that nobody can log in to here."""
        if realm not in self._realms:
            raise InvalidScope("realm_without_login")
        return self._realms[realm]

    async def find_user(self, realm: str, username: str) -> User | None:
        """None where the user may not log in any more, or the realm is none that we know."""
        return await self._realms[realm].find_user(username) if realm in self._realms else None

    async def log_in(self, realm: str, username: str, password: str, address: str, device: str = "") -> User:
        """The user, or InvalidGrant; past a limit nothing is checked: LoginThrottled.

        `device` names a browser in which this user has logged in before.
        """
        checker = self.find_realm(realm)
        checker.check_room()
        of_user, of_address = self._make_counters(realm, username, address, device)
        try:
            # The user first: who waits for a user must not take up room of an address that others share.
            async with self._attempts.checking(of_user, of_address, failure=InvalidGrant):
                return await checker.log_in(username, password)
        except Exhausted as error:
            raise LoginThrottled("login_throttled", retry_after_seconds=error.wait_seconds) from None

    def _make_counters(
        self, realm: str, username: str, address: str, device: str
    ) -> tuple[Sequence[Counter], Sequence[Counter]]:
        """Two groups, since the keys of an address and of a user lie in different slots.

        A known device has counters of its own, or strangers could lock a user out by failing in their name.
        """
        identity = identify_user(realm, username)
        short, long = (f"device {device}", f"device {device} long") if device else (address, "")
        return (
            [
                Counter(login_key(identity, short), *self._allowed.per_user_and_address),
                Counter(login_key(identity, long), *self._allowed.per_user),
            ],
            [Counter(address_key("login", address), *self._allowed.per_address)],
        )
