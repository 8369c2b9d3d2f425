"""Pending logins, sealed so that the browser or the identity provider carries them and Redis stores nothing.

Any visitor can begin a login, so a record of each login would let strangers fill Redis. A sealed text takes no room
here and cannot be read or changed in transit. It is bound to the browser by the digest of a secret that only the
browser has.

Clauses: RFC 6749 §10.10, §10.12, SPEC §2.2, §4.1
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from service.crypto.keyring import Keyring
from service.protocol.authorization import AuthorizationRequest

PENDING_MS: Final = 1_800_000
"""The lifetime of a login form."""

EXTERNAL_MS: Final = 600_000
"""The lifetime of a login at an identity provider. A returned login leaves a mark in Redis for the rest of it."""


class _SealedLogin(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The content of a sealed login. `browser_digest` names the browser that the login is bound to.

    Without a request, the login leads to /sessions/.
    """

    expires_ms: int
    browser_digest: str
    request: AuthorizationRequest | None


class PendingLogin(_SealedLogin, frozen=True, kw_only=True, array_like=True):
    """A login form. `force_login` is True if another user than the last one will log in."""

    force_login: bool


class ExternalLogin(_SealedLogin, frozen=True, kw_only=True, array_like=True):
    """A login at an identity provider, which is named by its realm and its fingerprint."""

    realm: str
    provider: str


_PURPOSES: Final = {PendingLogin: "login form", ExternalLogin: "login at a provider"}

SealedLogin = TypeVar("SealedLogin", PendingLogin, ExternalLogin)


class PendingLogins:
    """Seals pending logins and opens them again. `now_ms` returns the time by the clock of Redis."""

    def __init__(self, keyring: Keyring, now_ms: Callable[[], int]) -> None:
        self._keyring = keyring
        self._now_ms = now_ms

    def seal_form(self, browser_digest: str, request: AuthorizationRequest | None, *, force_login: bool) -> str:
        expires_ms = self._now_ms() + PENDING_MS
        return self._seal(
            PendingLogin(expires_ms=expires_ms, browser_digest=browser_digest, request=request, force_login=force_login)
        )

    def seal_external(
        self, browser_digest: str, request: AuthorizationRequest | None, *, realm: str, provider: str
    ) -> str:
        """Return the text that travels as `state` to the identity provider and back; no two texts are equal."""
        return self._seal(
            ExternalLogin(
                expires_ms=self._now_ms() + EXTERNAL_MS,
                browser_digest=browser_digest,
                request=request,
                realm=realm,
                provider=provider,
            )
        )

    def open(self, text: str, kind: type[SealedLogin]) -> SealedLogin | None:
        """Return the login, or None unless one of our keys sealed exactly this text for a login of this kind."""
        content = self._keyring.open_for_page(_PURPOSES[kind], text)
        try:
            return None if content is None else msgspec.json.decode(content, type=kind)
        except ValueError:  # sealed by another version of the service
            return None

    def find_time_left_ms(self, login: PendingLogin | ExternalLogin) -> int | None:
        """Return how much of the login's lifetime is left, or None if it has expired.

        Raises StoreUnavailable if this worker has not yet received the time from Redis.
        """
        left_ms = login.expires_ms - self._now_ms()
        return left_ms if left_ms > 0 else None

    def _seal(self, login: PendingLogin | ExternalLogin) -> str:
        return self._keyring.seal_for_page(_PURPOSES[type(login)], msgspec.json.encode(login))
