"""lua/take_lock.lua, and the lock that the three scripts make."""

from __future__ import annotations

import asyncio

import pytest
import redis

from service.redis_client.deadline import StoreUnavailable
from service.redis_client.lock import LOCK_PAUSE_SECONDS, RedisLock
from service.redis_client.script import load_own_script
from service.worker import Worker
from tests.redis_client.passing import Passing

KEY = "lock:{registry}"
TAKE = load_own_script("take_lock")
LIFETIME_MS = 10_000


async def take(parts: Worker, holder: str) -> str:
    return str((await parts.redis.run(TAKE, [KEY], [holder, LIFETIME_MS]))[0])


def make_lock(parts: Worker, waited: list[bool]) -> RedisLock:
    return parts.redis.make_lock(KEY, LIFETIME_MS / 1000, lambda: waited.append(True))


async def test_one_takes_it_and_the_others_do_not(parts: Worker, store: redis.Redis) -> None:
    verdicts = await asyncio.gather(*(take(parts, f"holder {number}") for number in range(50)))

    assert sorted(verdicts) == ["held"] * 49 + ["taken"]
    assert store.get(KEY) == f"holder {verdicts.index('taken')}"
    assert 0 < store.pttl(KEY) <= LIFETIME_MS


async def test_who_does_not_know_what_became_of_the_first_time_has_it_at_the_second(parts: Worker) -> None:
    assert [await take(parts, "holder"), await take(parts, "holder")] == ["taken", "taken"]


async def test_many_who_want_it_have_it_one_after_the_other(passing: Passing, parts: Worker) -> None:
    inside: list[int] = []
    waited: list[bool] = []

    async def work(number: int) -> None:
        async with make_lock(parts, waited):
            inside.append(number)
            await asyncio.sleep(0)
            assert inside[-1] == number

    working = asyncio.gather(*(work(number) for number in range(5)))
    await passing.run(working, 5 * LOCK_PAUSE_SECONDS)

    assert sorted(inside) == list(range(5))
    assert len(waited) == 4


async def test_who_was_too_slow_is_told_that_it_is_anothers(parts: Worker, store: redis.Redis) -> None:
    async with make_lock(parts, []) as lock:
        await lock.renew()
        store.set(KEY, "another")
        with pytest.raises(StoreUnavailable, match="another's by now"):
            await lock.renew()

    assert store.get(KEY) == "another"
