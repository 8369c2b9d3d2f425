"""Slow checks take turns by network, so that one address does not keep the others out.

They run at low priority, so that they hold up no other request.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator

import pytest

from service.crypto.hashing_pool import HashingPool
from service.protocol.errors import TemporarilyUnavailable
from service.system.process import LOWER_BY, count_usable_cores

FLOOD, OTHER = "2001:db8::/48", "203.0.113.7"
ROOM = 52


class Held:
    """A pool of one thread, which the test holds. `order` is the order in which it worked.

    `niceness` is that of the thread which did each work.
    """

    def __init__(self) -> None:
        self.pool = HashingPool("held", threads=1)
        self.order: list[str] = []
        self.niceness: dict[str, int] = {}
        self._gate = threading.Event()

    def ask(self, name: str, network: str) -> asyncio.Task[str]:
        return asyncio.create_task(self.pool.run(self._work, name, network=network))

    async def ask_many(self, count: int, network: str) -> list[asyncio.Task[str]]:
        tasks = [self.ask(f"{network} {number}", network) for number in range(count)]
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
    held = Held()
    yield held
    held.let_go()
    held.pool.close()


def refused(results: list[str | BaseException]) -> int:
    assert all(isinstance(result, str | TemporarilyUnavailable) for result in results), results
    return sum(isinstance(result, TemporarilyUnavailable) for result in results)


@pytest.mark.clause("decided-fair-hashing-queue")
async def test_networks_take_turns_in_the_order_of_arrival(held: Held) -> None:
    # The thread has two of them already.
    tasks = [*await held.ask_many(6, "a"), *await held.ask_many(3, "b"), *await held.ask_many(1, "c")]
    held.let_go()
    await asyncio.gather(*tasks)

    assert held.order == ["a 0", "a 1", "a 2", "b 0", "c 0", "a 3", "b 1", "a 4", "b 2", "a 5"]


@pytest.mark.clause("decided-fair-hashing-queue", "decided-password-queue-full")
async def test_newcomer_displaces_the_newest_of_the_longest_queue(held: Held) -> None:
    flood = await held.ask_many(ROOM, FLOOD)
    # The longer queue gives way until both have the same length.
    others = await held.ask_many(40, OTHER)
    held.let_go()
    late = refused(await asyncio.gather(*others, return_exceptions=True))
    early = await asyncio.gather(*flood, return_exceptions=True)

    assert refused(early) + late == 40
    assert refused(early) == 25
    assert [isinstance(result, str) for result in early] == [True] * 27 + [False] * 25


@pytest.mark.clause("decided-fair-hashing-queue")
async def test_cancelled_caller_leaves_its_place_in_the_queue(held: Held) -> None:
    tasks = await held.ask_many(ROOM, FLOOD)
    for task in tasks[3:40]:
        task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    more = await held.ask_many(37, OTHER)
    with pytest.raises(TemporarilyUnavailable):
        held.pool.check_room(OTHER)
    held.let_go()
    done = await asyncio.gather(*tasks[:3], *tasks[40:], *more)

    assert len(done) == len(held.order) == ROOM
    assert await held.pool.run(str, "next", network=FLOOD) == "next"


async def test_hashes_give_way_to_the_event_loop(held: Held) -> None:
    under_way = await held.ask_many(1, OTHER)
    held.let_go()
    await asyncio.gather(*under_way)

    assert held.niceness == {f"{OTHER} 0": min(get_niceness() + LOWER_BY, 19)}


def test_only_the_cores_that_a_process_may_use_are_counted() -> None:
    usable = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(usable)})
        assert count_usable_cores() == 1
    finally:
        os.sched_setaffinity(0, usable)
    assert count_usable_cores() == len(usable)
