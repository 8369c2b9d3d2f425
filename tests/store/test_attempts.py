"""The throttle as its callers see it: parallel guesses, waiting, and the time of a refusal."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis

from service.protocol.errors import TemporarilyUnavailable
from service.store.attempts import MAX_WAITING, RETRY_DELAY_SECONDS, Attempts, Counter
from service.worker import Worker
from tests.support.loop_time import LoopTime
from tests.support.waiting import until

TEN = Counter("login:{abc}:ten", 10, 60_000)
OTHERS = Counter("login:{def}:others", 5, 60_000)


@pytest.fixture
def long_queue_timeout(worker: Worker) -> None:
    """A time limit in the queue that a slow machine does not reach."""
    worker.attempts.queue_timeout_seconds = 30


class WaitingLogins:
    """Logins that wait for room on a full counter. `reserved` has those that got it, in that order."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self.waiting: list[asyncio.Task[None]] = []
        self.reserved: list[int] = []

    async def gather(self, size: int) -> None:
        """Start so many logins and wait until all are in the queue."""
        for number in range(size):
            self.waiting.append(asyncio.create_task(self._wait(number)))
        await asyncio.sleep(0)

    async def _wait(self, number: int) -> None:
        await self._attempts.reserve([TEN])
        self.reserved.append(number)
        await self._attempts.settle([TEN], passed=True)

    async def leave(self) -> None:
        for task in self.waiting:
            task.cancel()
        await asyncio.gather(*self.waiting, return_exceptions=True)


@pytest.fixture
async def waiting_logins(worker: Worker, long_queue_timeout: None) -> AsyncIterator[WaitingLogins]:
    """No waiting logins yet, and a counter that is full."""
    for _ in range(10):
        await worker.attempts.reserve([TEN])
    waiting_logins = WaitingLogins(worker.attempts)
    yield waiting_logins
    await waiting_logins.leave()


def count_script_calls(store: redis.Redis) -> int:
    return int(store.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])


@pytest.mark.clause("decided-parallel-logins-wait")
@pytest.mark.single_server("the calls of one server are counted")
async def test_waiting_callers_cost_redis_no_more_than_one(
    worker: Worker, store: redis.Redis, waiting_logins: WaitingLogins, loop_time: LoopTime
) -> None:
    with loop_time.held():
        await waiting_logins.gather(150)
        await until(lambda: loop_time.is_due_in(RETRY_DELAY_SECONDS))
        before = count_script_calls(store)
        for asked in range(8):
            await until(lambda: loop_time.is_due_in(RETRY_DELAY_SECONDS))
            assert count_script_calls(store) == before + asked
            loop_time.advance(RETRY_DELAY_SECONDS)
        assert waiting_logins.reserved == []
    await worker.attempts.settle([TEN], passed=True)
    await asyncio.gather(*waiting_logins.waiting)
    assert waiting_logins.reserved == list(range(150))


@pytest.mark.clause("decided-parallel-logins-wait")
async def test_callers_that_find_room_do_not_queue(worker: Worker) -> None:
    """They are more than may wait for one counter."""
    roomy = Counter("login:{abc}:roomy", MAX_WAITING + 100, 60_000)

    assert await asyncio.gather(*(worker.attempts.reserve([roomy]) for _ in range(roomy.most))) == [0] * roomy.most


@pytest.mark.parametrize("leaver", [0, 1, 100, 199])
async def test_cancelled_waiter_leaves_the_queue(worker: Worker, waiting_logins: WaitingLogins, leaver: int) -> None:
    await waiting_logins.gather(MAX_WAITING)
    waiting_logins.waiting.pop(leaver).cancel()
    await asyncio.sleep(0)
    await waiting_logins.gather(1)
    await worker.attempts.settle([TEN], passed=True)
    await asyncio.gather(*waiting_logins.waiting)

    assert waiting_logins.reserved == [number for number in range(200) if number != leaver] + [0]


async def test_a_queue_that_gave_up_is_empty_again(
    worker: Worker, waiting_logins: WaitingLogins, store: redis.Redis
) -> None:
    worker.attempts.queue_timeout_seconds = 0.05
    await waiting_logins.gather(MAX_WAITING)
    outcomes = await asyncio.gather(*waiting_logins.waiting, return_exceptions=True)
    assert {TemporarilyUnavailable} == {type(outcome) for outcome in outcomes}
    assert (store.get(f"lease:{TEN.key}"), store.exists(TEN.key)) == ("10", 0)

    worker.attempts.queue_timeout_seconds = 30
    waiting_logins.waiting.clear()
    await waiting_logins.gather(MAX_WAITING)
    await worker.attempts.settle([TEN], passed=True)
    await asyncio.gather(*waiting_logins.waiting)
    assert waiting_logins.reserved == list(range(200))


async def test_cancelled_reservation_frees_its_room(worker: Worker, store: redis.Redis) -> None:
    """The login is cancelled while Redis reserves. The room must not stay taken."""
    await worker.attempts.reserve([TEN])
    worker.attempts.queue_timeout_seconds = 0
    outcomes = await asyncio.gather(*(worker.attempts.reserve([TEN]) for _ in range(5)), return_exceptions=True)

    assert store.get(f"lease:{TEN.key}") == str(1 + outcomes.count(0))


@pytest.mark.clause("decided-parallel-logins-wait", "decided-only-failures-count")
async def test_checks_in_parallel_never_exceed_the_limit(
    worker: Worker, store: redis.Redis, long_queue_timeout: None
) -> None:
    under_way: set[int] = set()
    most = 0

    async def check(number: int) -> None:
        nonlocal most
        async with worker.attempts.checking([TEN], [OTHERS], failure=ValueError):
            under_way.add(number)
            most = max(most, len(under_way))
            await asyncio.sleep(0)
            under_way.remove(number)

    await asyncio.gather(*(check(number) for number in range(100)))

    assert 1 <= most <= OTHERS.most
    assert not store.exists(TEN.key, OTHERS.key, f"lease:{TEN.key}", f"lease:{OTHERS.key}")
