"""Rate limits for the checks of passwords and secrets, kept as counters of failed checks.

An attempt is reserved before a check and released on success.

Only failed checks exhaust a limit. Pending checks count as well, so that parallel guesses cannot exceed it. Pending
checks make the next caller wait for their outcome instead of refusing it, because many correct logins at once are no
attack. Opened pages are counted in the same way and are never released.

An IPv6 address counts three times: under its /64, its /56 and its /48, each with its own limit. The owner of a network
controls all addresses in it.

Clauses: RFC 6749 §2.3.1, §4.3.2, §10.10, RFC 6819 §5.1.4.2.3
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import lru_cache
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from service.protocol.errors import TemporarilyUnavailable
from service.protocol.user import UserIdentity
from service.redis_client.deadline import StoreUnavailable, charge_wait
from service.store.client import StoreClient, load_script
from service.store.keys import address_key, origins_key

QUEUE_TIMEOUT_SECONDS: Final = 1.5
RETRY_DELAY_SECONDS: Final = 0.02
MAX_WAITING: Final = 200

_RESERVE: Final = load_script("reserve_attempt")
_SETTLE: Final = load_script("settle_attempt")
_ORIGIN: Final = re.compile("<(.*?)>")


class Counter(NamedTuple):
    """A counter with its limit: `most` failed checks in `window_ms` milliseconds.

    `key` has the caller's networks or browser in angle brackets, in place of the digests in the name of the key.
    """

    key: str
    most: int
    window_ms: int


class FailedLogins(NamedTuple):
    """The failed logins under a user name from one origin, with their limit and what is left of the counter's life."""

    origin: str
    failed: int
    limit: int
    left_ms: int

    @property
    def wait_seconds(self) -> int:
        """The whole seconds until the next check, rounded up; 0 if the limit is not reached."""
        return -(-self.left_ms // 1000) if self.failed >= self.limit else 0


class Prefix(NamedTuple):
    """A network that counts an address, and the factor that multiplies the limit per address for this network."""

    network: str
    factor: int


Prefixes = tuple[Prefix, ...]
"""All networks that count one address, the narrowest first."""


def make_address_counters(
    purpose: str, prefixes: Prefixes, allowed: tuple[int, int], name: str = ""
) -> tuple[Counter, ...]:
    """Return the counters of an address for one purpose, optionally combined with a name. All share one hash tag.

    `allowed` is the limit of one address: a count and a window in milliseconds.
    """
    most, window_ms = allowed
    widest = prefixes[-1].network
    return tuple(
        Counter(address_key(purpose, widest, name, within_it=network), factor * most, window_ms)
        for network, factor in prefixes
    )


class Exhausted(Exception):
    """The limit is reached, and no check is allowed for `wait_ms` milliseconds."""

    def __init__(self, wait_ms: int) -> None:
        super().__init__(wait_ms)
        self.wait_ms = wait_ms

    @property
    def wait_seconds(self) -> int:
        """The wait in whole seconds, rounded up, for the Retry-After header."""
        return -(-self.wait_ms // 1000)


class Attempts:
    """The counters of failed checks.

    A caller waits up to `queue_timeout_seconds` for pending checks, at most `max_waiting` callers for one counter. The
    first of them asks Redis again after each `retry_delay_seconds`. `digest_origin` hides the callers in names of keys.
    """

    def __init__(self, redis: StoreClient, digest_origin: Callable[[str], str]) -> None:
        self.queue_timeout_seconds = QUEUE_TIMEOUT_SECONDS
        self.retry_delay_seconds = RETRY_DELAY_SECONDS
        self.max_waiting = MAX_WAITING
        self._redis = redis
        self._digest_origin = lru_cache(10_000)(digest_origin)
        self._queues: WeakValueDictionary[str, _Queue] = WeakValueDictionary()

    @asynccontextmanager
    async def checking(
        self, *groups: Sequence[Counter], failure: type[Exception] | tuple[type[Exception], ...]
    ) -> AsyncIterator[int]:
        """Reserve an attempt on each group of counters in turn, run the body as one check, then settle the attempts.

        Yields the result of `reserve` for the first group.

        Only exceptions in `failure` count as a failed check. After any other exception the attempts are released, so
        that an outage uses up no attempts. The counters of one group share a hash tag. Raises what `reserve` raises.
        """
        marked_ms = list[int]()
        async with AsyncExitStack() as undo:
            for counters in groups:
                marked_ms.append(await self.reserve(counters))
                undo.push_async_callback(self._give_back, counters)
            try:
                yield marked_ms[0]
            except failure:
                undo.pop_all()
                await self.settle(*groups, passed=False)
                raise
            undo.pop_all()
            await asyncio.gather(*map(self._give_back, groups))

    async def count(self, counters: Sequence[Counter]) -> None:
        """Count one event that is limited regardless of its outcome. Raises Exhausted if a limit is reached."""
        await self.reserve(counters)
        await self.settle(counters, passed=False)

    async def list_of_user(self, identity: UserIdentity) -> list[FailedLogins]:
        """Return the counters of a user name: those of single origins, and then that of all, whose name is empty."""
        listed = await self._redis.read("HGETALL", origins_key(identity))
        answers = await self._redis.read_many([(verb, key.decode()) for key in listed for verb in ("GET", "PTTL")])
        limits = [value.decode().partition(" ") for value in listed.values()]
        counters = zip(limits, answers[::2], answers[1::2], strict=True)
        found = [FailedLogins(origin, int(n), int(most), left) for (most, _, origin), n, left in counters if n]
        return sorted(found, reverse=True)

    async def clear_user(self, identity: UserIdentity) -> int:
        """Delete the counters of a user name, of all origins. Returns their number."""
        listed = await self._redis.read("HGETALL", origins_key(identity))
        keys = [origins_key(identity), *(key.decode() for key in listed)]
        return sum((await self._redis.write_many([("DEL", key) for key in keys]))[1:])

    async def _give_back(self, counters: Sequence[Counter]) -> None:
        with suppress(StoreUnavailable):
            await self.settle(counters, passed=True)

    async def reserve(self, counters: Sequence[Counter]) -> int:
        """Reserve one attempt on all of these counters, which share a hash tag.

        If pending checks fill a limit, wait for their outcome, in the order of arrival. Raises Exhausted if failed
        checks have reached a limit. Raises TemporarilyUnavailable if the wait times out or too many callers wait.

        Returns the time of the latest revokeAll of the user whose name the counters count, or 0.
        """
        queue = self._queues.setdefault(counters[0].key, _Queue())
        # Callers that find room need no queue, in which each would wait for the answer to the one before.
        if queue.length == 0 and (marked_ms := await self._reserve_if_room(counters)) is not None:
            return marked_ms
        if queue.length >= self.max_waiting:
            raise _too_busy()
        started_at = time.monotonic()
        gives_up_at = started_at + self.queue_timeout_seconds
        queue.length += 1
        try:
            async with asyncio.timeout(self.queue_timeout_seconds):
                await queue.lock.acquire()
            charge_wait(started_at)
            try:
                return await self._reserve_when_possible(counters, gives_up_at)
            finally:
                queue.lock.release()
        except TimeoutError:
            raise _too_busy() from None
        finally:
            queue.length -= 1

    async def _reserve_when_possible(self, counters: Sequence[Counter], gives_up_at: float) -> int:
        """Run the reserve script until all counters are below their limits.

        Only the first caller of a queue does this, so that more waiting callers send no more commands. The wait
        times out only between two script calls: abandoning a running call could leak a reservation.
        """
        while (marked_ms := await self._reserve_if_room(counters)) is None:
            if time.monotonic() >= gives_up_at:
                raise _too_busy()
            await asyncio.sleep(self.retry_delay_seconds)
        return marked_ms

    async def _reserve_if_room(self, counters: Sequence[Counter]) -> int | None:
        """Return what `reserve` returns, or None if pending checks fill a limit. Raises Exhausted."""
        keys = self._name_keys(counters)
        limits = [number for counter in counters for number in (counter.most, counter.window_ms)]
        verdict, *values = await self._redis.run(_RESERVE, counters=keys, limits=limits)
        if verdict == "exhausted":
            raise Exhausted(int(values[0]))
        return int(values[0]) if verdict == "reserved" else None

    async def settle(self, *groups: Sequence[Counter], passed: bool) -> None:
        """Release the reserved attempts if the check passed, or else count them as failed."""
        for counters in groups:
            keys, outcome = self._name_keys(counters), "passed" if passed else "failed"
            limits = [
                value
                for counter in counters
                for value in (counter.most, counter.window_ms, "".join(_ORIGIN.findall(counter.key)))
            ]
            await self._redis.run(_SETTLE, counters=keys, outcome=outcome, limits=limits)

    def _name_keys(self, counters: Sequence[Counter]) -> list[str]:
        """Return the names of the keys, which do not tell where callers are."""
        return [_ORIGIN.sub(lambda found: self._digest_origin(found[1]), counter.key) for counter in counters]


class _Queue:
    """The callers of this worker that wait for one counter to fall below its limit."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.length = 0


def _too_busy() -> TemporarilyUnavailable:
    return TemporarilyUnavailable("checks_queue_full", retry_after_seconds=1)
