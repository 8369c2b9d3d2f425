"""Counters of failed checks of passwords and secrets, reserved before the check and given back when it was right.

Only failed checks exhaust a limit. Checks under way count as well, so that parallel guesses cannot pass it, but they
make the next caller wait for their outcome instead of refusing it: many right logins at once are no attack. Opened
pages are counted in the same way, and never given back.

An IPv6 address counts three times: under its /64, its /56 and its /48, each with a limit of its own. Whoever owns a
network has all the addresses in it.

Clauses: RFC 6749 §2.3.1, §4.3.2, §10.10, RFC 6819 §5.1.4.2.3
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import Context
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from service.protocol.errors import TemporarilyUnavailable
from service.redis_client.deadline import StoreUnavailable, charge_wait
from service.store.client import StoreClient
from service.store.keys import address_key
from service.store.scripts import load_script

QUEUE_TIMEOUT_SECONDS: Final = 1.5
RETRY_DELAY_SECONDS: Final = 0.02
MAX_WAITING: Final = 200

_RESERVE: Final = load_script("reserve_attempt")
_SETTLE: Final = load_script("settle_attempt")


class Counter(NamedTuple):
    """One counter with its limit: `most` failed checks in `window_ms` milliseconds."""

    key: str
    most: int
    window_ms: int


class Prefix(NamedTuple):
    """A network that an address counts under, and the factor by which a limit per address is multiplied there."""

    network: str
    factor: int


Prefixes = tuple[Prefix, ...]
"""All networks that one address counts under, the narrowest first."""


def make_address_counters(
    purpose: str, prefixes: Prefixes, allowed: tuple[int, int], name: str = ""
) -> tuple[Counter, ...]:
    """Return the counters of an address for one purpose, alone or together with a name; all share one hash tag.

    `allowed` is the limit of one address: a count, and a window in milliseconds.
    """
    most, window_ms = allowed
    widest = prefixes[-1].network
    return tuple(
        Counter(address_key(purpose, widest, name, within_it=network), factor * most, window_ms)
        for network, factor in prefixes
    )


class Exhausted(Exception):
    """Past the limit; nothing may be checked for `wait_ms` milliseconds."""

    def __init__(self, wait_ms: int) -> None:
        super().__init__(wait_ms)
        self.wait_ms = wait_ms

    @property
    def wait_seconds(self) -> int:
        """Whole seconds, rounded up, as Retry-After has them."""
        return -(-self.wait_ms // 1000)


class Attempts:
    def __init__(self, redis: StoreClient) -> None:
        self._redis = redis
        self._queues: WeakValueDictionary[str, _Queue] = WeakValueDictionary()
        self._giving_back: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def checking(
        self, *groups: Sequence[Counter], failure: type[Exception] | tuple[type[Exception], ...]
    ) -> AsyncIterator[None]:
        """Around one check: reserved on each group in turn before it, settled after it.

        Only `failure` counts as a failed check: an outage must not use up anybody's attempts. The counters of a group
        lie under one hash tag.
        """
        async with AsyncExitStack() as undo:
            for counters in groups:
                await self.reserve(counters)
                undo.push_async_callback(self._give_back, counters)
            try:
                yield
            except failure:
                undo.pop_all()
                await self._settle(groups, passed=False)
                raise
            undo.pop_all()
            await self._settle(groups, passed=True)

    async def count(self, counters: Sequence[Counter]) -> None:
        """One more of what is limited in itself, whatever comes of it; raises Exhausted past a limit."""
        await self.reserve(counters)
        await self.settle(counters, passed=False)

    async def _settle(self, groups: Sequence[Sequence[Counter]], *, passed: bool) -> None:
        for counters in groups:
            await self.settle(counters, passed=passed)

    async def _give_back(self, counters: Sequence[Counter]) -> None:
        with suppress(StoreUnavailable):
            await self.settle(counters, passed=True)

    async def admit(self, counters: Sequence[Counter]) -> None:
        """Reserve room for a check that is known to pass, and give it back without waiting for that.

        Raises what `reserve` raises. In a slow Redis a request has no time for both answers.
        """
        await self.reserve(counters)
        # In a context of its own: the time that it takes is not the request's.
        giving_back = asyncio.create_task(self._give_back(counters), context=Context())
        self._giving_back.add(giving_back)
        giving_back.add_done_callback(self._giving_back.discard)

    async def reserve(self, counters: Sequence[Counter]) -> None:
        """Room for one check on all of them, which lie under one hash tag; raises Exhausted past a limit.

        Where checks under way fill a limit this waits a little for their outcome, in the order of arrival; who cannot
        wait is told so: TemporarilyUnavailable.
        """
        queue = self._queues.setdefault(counters[0].key, _Queue())
        if queue.length >= MAX_WAITING:
            raise _too_busy()
        started_at = time.monotonic()
        gives_up_at = started_at + QUEUE_TIMEOUT_SECONDS
        queue.length += 1
        try:
            async with asyncio.timeout(QUEUE_TIMEOUT_SECONDS):
                await queue.head.acquire()
            charge_wait(started_at)
            try:
                await self._await_room(counters, gives_up_at)
            finally:
                queue.head.release()
        except TimeoutError:
            raise _too_busy() from None
        finally:
            queue.length -= 1

    async def _await_room(self, counters: Sequence[Counter], gives_up_at: float) -> None:
        """Only the head of a queue asks, so that a crowd that waits costs Redis no more than one does.

        Patience ends between two questions: an answer that nobody awaits might have reserved room for nobody.
        """
        keys, limits = _split(counters)
        while True:
            verdict = await self._redis.run(_RESERVE, keys, limits)
            if verdict[0] == "reserved":
                return
            if verdict[0] == "exhausted":
                raise Exhausted(int(verdict[1]))
            if time.monotonic() >= gives_up_at:
                raise _too_busy()
            await asyncio.sleep(RETRY_DELAY_SECONDS)

    async def settle(self, counters: Sequence[Counter], *, passed: bool) -> None:
        keys, limits = _split(counters)
        await self._redis.run(_SETTLE, keys, ["passed" if passed else "failed", *limits])


class _Queue:
    """Who waits on this worker for room on one counter."""

    def __init__(self) -> None:
        self.head = asyncio.Lock()
        self.length = 0


def _split(counters: Sequence[Counter]) -> tuple[list[str], list[int]]:
    """Return the keys, and for each of them a count and a window in milliseconds."""
    limits = [number for counter in counters for number in (counter.most, counter.window_ms)]
    return [counter.key for counter in counters], limits


def _too_busy() -> TemporarilyUnavailable:
    return TemporarilyUnavailable("checks_queue_full", retry_after_seconds=1)
