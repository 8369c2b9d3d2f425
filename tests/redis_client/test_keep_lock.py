"""lua/keep_lock.lua, and the lock for all processes of the service."""

import asyncio
import re

import pytest
import redis

from service.redis_client.deadline import StoreUnavailable
from service.redis_client.lock import LOCK_PAUSE_SECONDS, LockHeld, RedisLock
from service.worker import Worker
from tests.redis_client.settled_time import SettledTime

KEY = "lock:{registry}"
LIFETIME_MS = 10_000


def make_lock(worker: Worker, waited: list[bool], wait_seconds: float | None = None) -> RedisLock:
    return RedisLock(worker.redis, KEY, lambda: waited.append(True), wait_seconds)


async def test_one_holder_at_a_time(settled_time: SettledTime, worker: Worker, store: redis.Redis) -> None:
    inside: list[int] = []
    waited: list[bool] = []

    async def work(number: int) -> None:
        async with make_lock(worker, waited):
            inside.append(number)
            assert 0 < store.pttl(KEY) <= LIFETIME_MS
            await asyncio.sleep(0)
            assert inside[-1] == number

    working = asyncio.gather(*(work(number) for number in range(5)))
    await settled_time.run(working, 5 * LOCK_PAUSE_SECONDS)

    assert sorted(inside) == list(range(5))
    assert len(waited) == 4
    assert not store.exists(KEY)


async def test_a_held_lock_is_refused_after_the_wait(worker: Worker, store: redis.Redis) -> None:
    waited: list[bool] = []
    store.set(KEY, "another", px=LIFETIME_MS)
    with pytest.raises(LockHeld, match=re.escape(KEY)):
        await make_lock(worker, waited, wait_seconds=0).__aenter__()

    assert waited == [True]
    assert store.get(KEY) == "another"


async def test_a_lock_that_expired_is_neither_renewed_nor_released(worker: Worker, store: redis.Redis) -> None:
    async with make_lock(worker, []) as lock:
        await lock.renew()
        store.set(KEY, "another")
        with pytest.raises(StoreUnavailable, match="another process may hold it"):
            await lock.renew()

    assert store.get(KEY) == "another"


async def test_work_ends_when_its_lock_is_lost(settled_time: SettledTime, worker: Worker, store: redis.Redis) -> None:
    work = asyncio.ensure_future(asyncio.Event().wait())
    async with make_lock(worker, []) as lock:
        store.set(KEY, "another")
        with pytest.raises(StoreUnavailable, match="another process may hold it"):
            await settled_time.run(lock.renew_during(work), LIFETIME_MS / 1000)

    assert work.cancelled()
