"""Counters of failed checks of passwords and secrets: reserved before the check, given back when it was right.

Only failed checks exhaust a limit. Checks under way count as well, so that parallel guesses cannot pass it, but they
make the next caller wait for their outcome instead of refusing it: many right logins at once are no attack.

Clauses: RFC 6749 §2.3.1, §4.3.2, §10.10, RFC 6819 §5.1.4.2.3
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from service.protocol.errors import TemporarilyUnavailable
from service.store.connection import StoreConnection
from service.store.scripts import load_script

PATIENCE_SECONDS: Final = 1.5
PAUSE_SECONDS: Final = 0.02

_RESERVE: Final = load_script("reserve_attempt")
_SETTLE: Final = load_script("settle_attempt")


class Counter(NamedTuple):
    """One counter with its limit: `most` failed checks in `window_ms` milliseconds."""

    key: str
    most: int
    window_ms: int


class Exhausted(Exception):
    """Past the limit; nothing may be checked for `wait_ms` milliseconds."""

    def __init__(self, wait_ms: int) -> None:
        super().__init__(wait_ms)
        self.wait_ms = wait_ms


class Attempts:
    def __init__(self, connection: StoreConnection) -> None:
        self._connection = connection

    async def reserve(self, counters: Sequence[Counter]) -> None:
        """Room for one check on all of them, which lie under one hash tag; raises Exhausted past a limit."""
        limits = [number for counter in counters for number in (counter.most, counter.window_ms)]
        patience_ends = time.monotonic() + PATIENCE_SECONDS
        while True:
            verdict = await self._connection.run(_RESERVE, [counter.key for counter in counters], limits)
            if verdict[0] == "reserved":
                return
            if verdict[0] == "exhausted":
                raise Exhausted(int(verdict[1]))
            if time.monotonic() > patience_ends:
                raise TemporarilyUnavailable("hashing_queue_full", retry_after_seconds=1)
            await asyncio.sleep(PAUSE_SECONDS)

    async def settle(self, counters: Sequence[Counter], *, passed: bool) -> None:
        keys = [counter.key for counter in counters]
        windows = [counter.window_ms for counter in counters]
        await self._connection.run(_SETTLE, keys, ["passed" if passed else "failed", *windows])

    async def find_wait_ms(self, counters: Sequence[Counter]) -> int:
        """How long to wait where a limit is exhausted already, without reserving anything; 0 where none is."""
        commands = [("HGET", counter.key, "failed") for counter in counters]
        found = await self._connection.read_many(commands)
        for counter, failed in zip(counters, found, strict=True):
            if int(failed or 0) >= counter.most:
                return max(1, int(await self._connection.read("PTTL", counter.key)))
        return 0
