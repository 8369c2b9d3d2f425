"""Pending logins, sealed so that the browser or the identity provider carries them and Redis stores nothing.

Any visitor can begin a login, so a record of each login would let strangers fill Redis. A sealed text takes no room
here and cannot be read or changed in transit. It is bound to the browser by the digest of a secret that only the
browser has.

Clauses: RFC 6749 §10.10, §10.12, SPEC §2.2, §4.1
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from service.crypto.keyring import Keyring
from service.protocol.authorization import AuthorizationRequest

Place = Literal["login form", "login at a provider"]
FORM: Final = "login form"
PROVIDER: Final = "login at a provider"
LIFETIMES_MS: Final[dict[Place, int]] = {FORM: 1_800_000, PROVIDER: 600_000}
"""A login that returns from an identity provider leaves a mark in Redis for the rest of its lifetime."""


class PendingLogin(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The content of a sealed login. `browser_digest` names the browser that the login is bound to.

    Without a request, the login leads to /sessions/. `force_login` is True if the user must log in again, or another
    user than the last one will log in. A login at an identity provider names it by its realm and its fingerprint, and
    the Redis time when it began.
    """

    expires_ms: int = 0
    browser_digest: str
    request: AuthorizationRequest | None
    force_login: bool = False
    realm: str = ""
    provider: str = ""
    begun_ms: int = 0


class PendingLogins:
    """Seals pending logins and opens them again. `now_ms` returns the time by the clock of Redis."""

    def __init__(self, keyring: Keyring, now_ms: Callable[[], int]) -> None:
        self._keyring = keyring
        self._now_ms = now_ms

    def seal(self, place: Place, login: PendingLogin) -> str:
        """Return the login as a text, which only `open` for the same place accepts. No two texts are equal.

        Its time of expiry is set here.
        """
        login = msgspec.structs.replace(login, expires_ms=self._now_ms() + LIFETIMES_MS[place])
        return self._keyring.seal(place, msgspec.json.encode(login))

    def open(self, place: Place, text: str) -> PendingLogin | None:
        """Return the login, or None unless one of our keys sealed exactly this text for this place."""
        content = self._keyring.open_sealed(place, text)
        try:
            return None if content is None else msgspec.json.decode(content, type=PendingLogin)
        except ValueError:  # sealed by another version of the service
            return None

    def find_time_left_ms(self, login: PendingLogin) -> int | None:
        """Return how much of the login's lifetime is left, or None if it has expired.

        Raises StoreUnavailable if this worker has not yet received the time from Redis.
        """
        left_ms = login.expires_ms - self._now_ms()
        return left_ms if left_ms > 0 else None
