"""Slow checks take turns by network and work, so that no caller keeps the others out.

They run at low priority, so that they hold up no other request.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator

import pytest

from service.crypto.hashing_pool import MAX_WAIT_SECONDS, HashingPool
from service.crypto.password_hashing import hash_password
from service.protocol.errors import TemporarilyUnavailable
from service.system.process import LEAST_PRIORITY, LOWER_BY, count_usable_cores
from tests.support.loop_time import LoopTime
from tests.support.weak_hashes import BCRYPT_HASH

FLOOD, OTHER = "2001:db8::/48", "203.0.113.7"


class Held:
    """A pool of one thread, which the test holds. `order` is the order in which it worked.

    `niceness` is that of the thread which did each work.
    """

    def __init__(self, pool: HashingPool) -> None:
        self.pool = pool
        self.order: list[str] = []
        self.niceness: dict[str, int] = {}
        self._gate = threading.Event()

    def ask(self, name: str, network: str, work: float = 1) -> asyncio.Task[str]:
        return asyncio.create_task(self.pool.run(self._work, name, network=network, work=work))

    async def ask_many(self, count: int, network: str, work: float = 1) -> list[asyncio.Task[str]]:
        tasks = [self.ask(f"{network} {number}", network, work) for number in range(count)]
        await asyncio.sleep(0)
        return tasks

    def let_go(self) -> None:
        self._gate.set()

    def _work(self, name: str) -> str:
        assert self._gate.wait(20)
        self.order.append(name)
        self.niceness[name] = get_niceness()
        return name


def get_niceness() -> int:
    """Return the niceness of the calling thread."""
    return os.getpriority(os.PRIO_PROCESS, 0)


@pytest.fixture
async def held() -> AsyncIterator[Held]:
    held = Held(HashingPool("held", threads=1))
    yield held
    held.let_go()
    held.pool.close()


@pytest.mark.clause("decided-fair-hashing-queue")
async def test_networks_take_turns_in_the_order_of_arrival(held: Held) -> None:
    # The thread has the first one already.
    tasks = [*await held.ask_many(5, "a"), *await held.ask_many(3, "b"), *await held.ask_many(1, "c")]
    held.let_go()
    await asyncio.gather(*tasks)

    assert held.order == ["a 0", "a 1", "b 0", "c 0", "a 2", "b 1", "a 3", "b 2", "a 4"]


@pytest.mark.clause("decided-fair-hashing-queue")
async def test_turns_are_shared_by_work_and_not_by_number(held: Held) -> None:
    tasks = [*await held.ask_many(3, "dear", 3), *await held.ask_many(6, "cheap", 1)]
    held.let_go()
    await asyncio.gather(*tasks)

    assert held.order == [
        *("dear 0", "cheap 0", "cheap 1", "dear 1", "cheap 2", "cheap 3", "cheap 4", "dear 2", "cheap 5")
    ]


@pytest.mark.clause("decided-fair-hashing-queue")
async def test_newcomer_does_not_overtake_earlier_callers(held: Held) -> None:
    tasks = await held.ask_many(3, "a")
    tasks.pop(0).cancel()  # the thread is still held, and the turn of the next one begins
    await asyncio.sleep(0)
    tasks.append(held.ask("b", "b"))
    await asyncio.sleep(0)
    held.let_go()
    await asyncio.gather(*tasks)

    assert held.order == ["a 0", "a 1", "a 2", "b"]


@pytest.mark.clause("decided-password-queue-full")
async def test_crowd_waits_and_nobody_is_refused_at_once(held: Held) -> None:
    crowd = await held.ask_many(200, FLOOD)
    held.let_go()

    assert len(await asyncio.gather(*crowd)) == len(held.order) == 200


@pytest.mark.clause("decided-password-queue-full")
async def test_turn_is_waited_for_three_seconds_at_most(held: Held, held_time: LoopTime) -> None:
    under_way, *waiting = await held.ask_many(20, FLOOD)
    await held_time.advance_in_steps(MAX_WAIT_SECONDS - 0.1)
    assert not any(task.done() for task in waiting)
    late = held.ask("late", FLOOD)
    await held_time.advance_in_steps(0.1)

    refused = await asyncio.gather(*waiting, return_exceptions=True)
    assert MAX_WAIT_SECONDS == 3
    for refusal in refused:
        assert isinstance(refusal, TemporarilyUnavailable)
        assert (refusal.reason, refusal.retry_after_seconds) == ("hashing_queue_full", 1)
    held.let_go()
    await asyncio.gather(under_way, late)
    assert held.order == [f"{FLOOD} 0", "late"]


@pytest.mark.clause("decided-fair-hashing-queue")
async def test_cancelled_caller_leaves_its_place_in_the_queue(held: Held) -> None:
    tasks = await held.ask_many(6, FLOOD)
    for task in tasks[1:5]:
        task.cancel()
    await asyncio.gather(*tasks[1:5], return_exceptions=True)
    other = held.ask("other", OTHER)
    held.let_go()
    await asyncio.gather(tasks[0], tasks[5], other)

    assert held.order == [f"{FLOOD} 0", "other", f"{FLOOD} 5"]


async def test_turn_of_a_caller_that_is_just_cancelled_passes_on(held: Held) -> None:
    tasks = await held.ask_many(2, FLOOD)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    held.let_go()

    assert await held.pool.run(str, "next") == "next"


async def test_hashes_give_way_to_the_event_loop(held: Held) -> None:
    under_way = await held.ask_many(1, OTHER)
    held.let_go()
    await asyncio.gather(*under_way)

    assert held.niceness == {f"{OTHER} 0": min(get_niceness() + LOWER_BY, LEAST_PRIORITY)}


@pytest.mark.clause("decided-foreign-hashes-apart")
async def test_own_hashes_never_wait_for_foreign_ones() -> None:
    """Foreign ones take turns by their work, which is less than half a check for this one of bcrypt."""
    foreign, done = Held(HashingPool("foreign", 1)), list[asyncio.Task[object]]()
    pool = HashingPool("own", 1, foreign=foreign.pool)
    first, second, short = *await foreign.ask_many(2, FLOOD, 20), foreign.ask("short", "a", 0.5)
    await asyncio.sleep(0)
    others, floods = (asyncio.create_task(pool.verify("a password", BCRYPT_HASH, each)) for each in (OTHER, FLOOD))

    assert await pool.verify("a password", hash_password("a password"), OTHER) == (True, None)
    assert not any(task.done() for task in (first, second, short, others, floods))
    for task in (first, second, short, others, floods):
        task.add_done_callback(done.append)
    foreign.let_go()
    await asyncio.gather(first, second, short, others, floods)
    assert done == [first, others, short, second, floods]
    for each in (pool, foreign.pool):
        each.close()


def test_only_the_cores_that_a_process_may_use_are_counted() -> None:
    usable = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(usable)})
        assert count_usable_cores() == 1
    finally:
        os.sched_setaffinity(0, usable)
    assert count_usable_cores() == len(usable)
