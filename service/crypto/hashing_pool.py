"""Bounded pools of threads for slow hashes.

Clients and users have a pool each, so that neither kind waits for the other. Foreign hashes cost up to twenty times as
much as the service's own, so both pools leave them to a third one with a single thread. Callers from different networks
take turns by the work of their checks, and wait for a turn for a few seconds.

Clauses: RFC 6749 §2.3.1, §10.10
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from service.crypto.hash_kinds import find_hash_cost
from service.crypto.password_hashing import is_foreign, verify_password
from service.observability.metrics import get_metrics
from service.protocol.errors import TemporarilyUnavailable
from service.system.process import LOWER_BY, configure_malloc, count_usable_cores, lower_thread_priority, trim_heap

MAX_WAIT_SECONDS: Final = 3.0
"""The longest wait for a turn. It slows down callers that try again at once, because refusals take the hashes' time."""
TRIM_SECONDS: Final = 10.0

Result = TypeVar("Result")


class HashingPool:
    """A pool of threads for slow hashes, by default with a thread for each usable core. Foreign hashes go to `foreign`.

    The threads have a lower priority. Otherwise the event loop often waits for a hash on its core until the
    scheduler's next tick, which is up to 4 ms away.

    Each hash takes 19 MiB (MEMORY_KIB in password_hashing.py), and a foreign one up to 256 MiB.
    """

    def __init__(
        self, name: str, threads: int | None = None, lower_by: int = LOWER_BY, foreign: HashingPool | None = None
    ) -> None:
        threads = threads or count_usable_cores()
        configure_malloc()
        self._threads = ThreadPoolExecutor(threads, name, lower_thread_priority, (lower_by,))
        self._queue = _FairQueue(threads)
        self._foreign = foreign or self
        metrics = get_metrics()
        self._checks, self._waits = metrics.checks.labels(name), metrics.waits.labels(name)
        self._refusals = metrics.full_queues.labels(name)

    async def verify(self, password: str, password_hash: str, network: str) -> tuple[bool, str | None]:
        """Return what `verify_password` returns. Raises what `run` raises."""
        cost = find_hash_cost(password_hash)
        pool, work = (self._foreign, cost.work if cost else 1) if is_foreign(password_hash) else (self, 1)
        return await pool.run(verify_password, password, password_hash, network=network, work=work)

    async def run(self, function: Callable[..., Result], *arguments: str, network: str = "", work: float = 1) -> Result:
        """Run the function in a thread and return its result. `network` is the network of the caller, or the program.

        `work` is the expected time in checks of the service's own hash. Raises TemporarilyUnavailable if the caller
        waits for its turn for more than MAX_WAIT_SECONDS.
        """
        started_at = time.perf_counter()
        turn = self._queue.enter(network, work)
        self._checks.inc()
        try:
            async with asyncio.timeout(MAX_WAIT_SECONDS):
                await turn
            self._waits.observe(time.perf_counter() - started_at)
            return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
        except TimeoutError:
            self._refusals.inc()
            raise TemporarilyUnavailable("hashing_queue_full", retry_after_seconds=1) from None
        finally:
            self._queue.leave(turn)
            self._checks.dec()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


async def keep_heap_trimmed() -> None:
    """Return the memory of past hashes to the system every TRIM_SECONDS. The next hash takes half as long again."""
    while True:
        await asyncio.sleep(TRIM_SECONDS)
        await asyncio.to_thread(trim_heap)


class _FairQueue:
    """Turns for `running` checks at a time, shared between networks by the work of their checks.

    A network's turn comes after its earlier turns, and after as much work of other networks as its own check takes.
    """

    def __init__(self, running: int) -> None:
        self._free = running
        self._waiting: dict[asyncio.Future[None], tuple[str, float]] = {}
        self._done = 0.0

    def enter(self, network: str, work: float) -> asyncio.Future[None]:
        """Return a future that is done at the caller's turn."""
        turn = asyncio.get_running_loop().create_future()
        earlier = [due for other, due in self._waiting.values() if other == network]
        self._waiting[turn] = network, max(earlier, default=self._done) + work
        self._give_turns()
        return turn

    def leave(self, turn: asyncio.Future[None]) -> None:
        """End a turn, or remove a caller that waits no longer."""
        if self._waiting.pop(turn, None) is None:
            self._free += 1
            self._give_turns()

    def _give_turns(self) -> None:
        while self._free and self._waiting:
            turn = min(self._waiting, key=lambda waiting: self._waiting[waiting][1])  # the earliest of several
            _, self._done = self._waiting.pop(turn)
            self._free -= 1
            if not turn.done():  # else its caller leaves at once
                turn.set_result(None)
