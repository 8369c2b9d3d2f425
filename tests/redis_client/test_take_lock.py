"""lua/take_lock.lua, and the lock that the three scripts make."""

from __future__ import annotations

import asyncio
import re

import pytest
import redis

from service.redis_client.deadline import StoreUnavailable
from service.redis_client.lock import LOCK_PAUSE_SECONDS, LockHeld, RedisLock
from service.redis_client.script import OWN_SCRIPTS
from service.worker import Worker
from tests.redis_client.settled_time import SettledTime

KEY = "lock:{registry}"
TAKE = OWN_SCRIPTS["take_lock"]
LIFETIME_MS = 10_000


async def take(worker: Worker, holder: str) -> str:
    return str((await worker.redis.run(TAKE, [KEY], [holder, LIFETIME_MS]))[0])


def make_lock(worker: Worker, waited: list[bool]) -> RedisLock:
    return RedisLock(worker.redis.run, KEY, LIFETIME_MS / 1000, lambda: waited.append(True))


async def test_one_takes_it_and_the_others_do_not(worker: Worker, store: redis.Redis) -> None:
    verdicts = await asyncio.gather(*(take(worker, f"holder {number}") for number in range(50)))

    assert sorted(verdicts) == ["held"] * 49 + ["taken"]
    assert store.get(KEY) == f"holder {verdicts.index('taken')}"
    assert 0 < store.pttl(KEY) <= LIFETIME_MS


async def test_who_does_not_know_what_became_of_the_first_time_has_it_at_the_second(worker: Worker) -> None:
    assert [await take(worker, "holder"), await take(worker, "holder")] == ["taken", "taken"]


async def test_many_who_want_it_have_it_one_after_the_other(settled_time: SettledTime, worker: Worker) -> None:
    inside: list[int] = []
    waited: list[bool] = []

    async def work(number: int) -> None:
        async with make_lock(worker, waited):
            inside.append(number)
            await asyncio.sleep(0)
            assert inside[-1] == number

    working = asyncio.gather(*(work(number) for number in range(5)))
    await settled_time.run(working, 5 * LOCK_PAUSE_SECONDS)

    assert sorted(inside) == list(range(5))
    assert len(waited) == 4


async def test_who_does_not_wait_takes_a_free_one_and_is_refused_one_that_is_held(
    worker: Worker, store: redis.Redis
) -> None:
    waited: list[bool] = []
    lock = RedisLock(worker.redis.run, KEY, LIFETIME_MS / 1000, lambda: waited.append(True), wait_seconds=0)
    async with lock:
        assert not waited
    store.set(KEY, "another", px=LIFETIME_MS)
    with pytest.raises(LockHeld, match=re.escape(KEY)):
        await lock.__aenter__()

    assert waited == [True]
    assert store.get(KEY) == "another"


async def test_who_was_too_slow_is_told_that_it_is_anothers(worker: Worker, store: redis.Redis) -> None:
    async with make_lock(worker, []) as lock:
        await lock.renew()
        store.set(KEY, "another")
        with pytest.raises(StoreUnavailable, match="another's by now"):
            await lock.renew()

    assert store.get(KEY) == "another"
