"""A lookup for the tests of an API, which need no Redis and no token service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..protocol.bearer import AccessGrant
from ..redis_client.deadline import StoreUnavailable, read_clock
from .lookup import BearerLookup
from .watch import Reason, Watch, Watches

NOTICED_SECONDS: Final = 0.01


def make_grant(scope: str = "realm:main role:enduser", **fields: Any) -> AccessGrant:
    """Return the grant of an invented user for ten minutes. `fields` replace fields of the AccessGrant."""
    now_ms = time.time_ns() // 1_000_000
    grant = AccessGrant(
        issued_at_ms=now_ms,
        expires_at_ms=now_ms + 600_000,
        family_digest="family",
        client_id="client",
        subject="subject",
        username="user@example.com",
        scope=scope,
    )
    return msgspec.structs.replace(grant, **fields)


class FakeLookup(BearerLookup):
    """A lookup that finds the tokens of `grants`, and connects to nothing.

    A test may change `grants` at any time, which a watch notices within 10 ms. While `is_available` is False, each
    lookup raises StoreUnavailable, and watches end.
    """

    def __init__(self, grants: Mapping[str, AccessGrant] | None = None) -> None:
        self.grants = dict(grants or {})
        self.is_available = True
        self._watches = Watches(self._note, retry_seconds=NOTICED_SECONDS)

    async def lookup(self, token: str) -> AccessGrant | None:
        if not self.is_available:
            raise StoreUnavailable("the test has made Redis unavailable")
        return self.grants.get(token)

    def watch(self, token: str) -> asyncio.Future[Reason]:
        return self._watches.add(token)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def close(self) -> None:
        self._watches.end_all()

    async def _note(self, watch: Watch) -> None:
        grant = self.grants.get(watch.key)
        if not self.is_available or grant is None:
            self._watches.end(watch, "revoked" if self.is_available else "unavailable")
        else:
            now = read_clock()
            self._watches.note(watch, now, now + (grant.expires_at_ms - self.now_ms()) / 1000, None)
