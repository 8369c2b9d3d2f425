"""Bounded pools of threads for slow hashes.

Clients and users have a pool each, so that neither kind waits for the other. Callers from different networks take turns
in the queue. If the queue is full, a newcomer is refused, or takes the place of a call from a busier network.

Clauses: RFC 6749 §2.3.1, §10.10
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NoReturn, TypeVar

from service.observability.metrics import get_metrics
from service.protocol.errors import TemporarilyUnavailable
from service.system.process import configure_malloc, count_usable_cores, lower_thread_priority, trim_heap

_ROOM_PER_THREAD: Final = 26
_MIN_ROOM: Final = 52
"""The number of hashes that run or wait, if there is one thread. It makes them in a second."""

IDLE_SECONDS: Final = 5.0

Result = TypeVar("Result")


class HashingPool:
    """A pool of threads for slow hashes, with a short queue. By default it has a thread for each usable core.

    The threads have a lower priority. Otherwise the event loop often waits for a hash on its core until the
    scheduler's next tick, which is up to 4 ms away.

    Each hash takes 19 MiB (MEMORY_KIB in password_hashing.py). The memory is kept for the next hash, and returned to
    the system after `IDLE_SECONDS` without a hash. An imported hash may take 256 MiB and twenty times as long.
    """

    def __init__(self, name: str, threads: int | None = None) -> None:
        threads = threads or count_usable_cores()
        configure_malloc()
        self._trim_timer: asyncio.TimerHandle | None = None
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name, initializer=lower_thread_priority)
        # The turn of one more hash begins early, so that a thread has its next hash at once.
        running, room = threads + 1, max(threads * _ROOM_PER_THREAD, _MIN_ROOM)
        self._queue = _FairQueue(running=running, waiting=room - running)
        metrics = get_metrics()
        self._checks, self._waits = metrics.checks.labels(name), metrics.waits.labels(name)
        self._refusals = metrics.full_queues.labels(name)

    def check_room(self, network: str = "") -> None:
        """Raise TemporarilyUnavailable if a hash for this network would be refused."""
        if not self._queue.has_room(network):
            self._refuse()

    async def run(self, function: Callable[..., Result], *arguments: str, network: str = "") -> Result:
        """Run the function in a thread and return its result. `network` is the network of the caller.

        Raises TemporarilyUnavailable if the queue is full and no other network has at least two more waiting calls than
        this one. Otherwise the newest waiting call of the network with the most is refused in its place.
        """
        self.check_room(network)
        turn = self._queue.enter(network)
        self._checks.inc()
        self._stop_timer()
        loop = asyncio.get_running_loop()
        work = functools.partial(self._begin, time.perf_counter(), function, *arguments)
        try:
            if not await turn:
                self._refuse()
            return await loop.run_in_executor(self._threads, work)
        finally:
            self._queue.leave(turn)
            self._checks.dec()
            self._stop_timer()
            self._trim_timer = loop.call_later(IDLE_SECONDS, threading.Thread(target=trim_heap, daemon=True).start)

    def _refuse(self) -> NoReturn:
        self._refusals.inc()
        raise TemporarilyUnavailable("hashing_queue_full", retry_after_seconds=1)

    def _begin(self, started_at: float, function: Callable[..., Result], *arguments: str) -> Result:
        self._waits.observe(time.perf_counter() - started_at)
        return function(*arguments)

    def _stop_timer(self) -> None:
        if self._trim_timer is not None:
            self._trim_timer.cancel()

    def close(self) -> None:
        self._stop_timer()
        self._threads.shutdown(wait=False, cancel_futures=True)


class _FairQueue:
    """Turns for `running` hashes at a time, with room for `waiting` more, shared between networks.

    Networks take turns, and each network's callers are served in the order of arrival. If the room is full, the
    network with the most waiting callers loses its newest one to a newcomer whose network would have fewer.

    Each caller has the number of a round, and a network has one caller in a round.
    """

    def __init__(self, *, running: int, waiting: int) -> None:
        self._free = running
        self._room = waiting
        self._waiting: dict[asyncio.Future[bool], tuple[str, int]] = {}
        self._round = 0

    def has_room(self, network: str) -> bool:
        lengths = self._count_networks()
        return lengths.total() < self._room or max(lengths.values()) > lengths[network] + 1

    def enter(self, network: str) -> asyncio.Future[bool]:
        """Return a future: True at the caller's turn, False if the caller gives way. Requires room."""
        if len(self._waiting) >= self._room:
            [(longest, _)] = self._count_networks().most_common(1)
            newest = [turn for turn, (other, _) in self._waiting.items() if other == longest][-1]
            del self._waiting[newest]
            newest.set_result(False)
        turn = asyncio.get_running_loop().create_future()
        rounds = [number for other, number in self._waiting.values() if other == network]
        self._waiting[turn] = network, max(rounds, default=self._round) + 1
        self._give_turns()
        return turn

    def leave(self, turn: asyncio.Future[bool]) -> None:
        """End a turn, or remove a caller that was cancelled while it waited."""
        if self._waiting.pop(turn, None) is None and not turn.cancelled() and turn.result():
            self._free += 1
            self._give_turns()

    def _count_networks(self) -> Counter[str]:
        return Counter(network for network, _ in self._waiting.values())

    def _give_turns(self) -> None:
        while self._free and self._waiting:
            turn = min(self._waiting, key=lambda waiting: self._waiting[waiting][1])  # the earliest of several
            _, self._round = self._waiting.pop(turn)
            if not turn.done():
                self._free -= 1
                turn.set_result(True)
