"""lua/renew_lock.lua"""

from __future__ import annotations

import redis

from service.redis_client.script import OWN_SCRIPTS
from service.worker import Worker

KEY = "lock:{registry}"
RENEW = OWN_SCRIPTS["renew_lock"]


async def test_its_holder_keeps_it_longer_and_nobody_else_does(worker: Worker, store: redis.Redis) -> None:
    store.set(KEY, "holder", px=5_000)

    assert await worker.redis.run(RENEW, [KEY], ["another", 10_000]) == ["lost"]
    assert store.pttl(KEY) <= 5_000
    assert await worker.redis.run(RENEW, [KEY], ["holder", 10_000]) == ["renewed"]
    assert 5_000 < store.pttl(KEY) <= 10_000


async def test_what_ended_is_not_taken_again(worker: Worker, store: redis.Redis) -> None:
    assert await worker.redis.run(RENEW, [KEY], ["holder", 10_000]) == ["lost"]
    assert not store.exists(KEY)
