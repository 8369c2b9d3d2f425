"""lua/release_lock.lua"""

from __future__ import annotations

import redis

from service.redis_client.script import OWN_SCRIPTS
from service.worker import Worker

KEY = "lock:{registry}"
RELEASE = OWN_SCRIPTS["release_lock"]


async def test_its_holder_gives_it_back_and_nobody_else_does(worker: Worker, store: redis.Redis) -> None:
    store.set(KEY, "holder", px=5_000)

    assert await worker.redis.run(RELEASE, [KEY], ["another"]) == ["lost"]
    assert store.exists(KEY)
    assert await worker.redis.run(RELEASE, [KEY], ["holder"]) == ["released"]
    assert not store.exists(KEY)
    assert await worker.redis.run(RELEASE, [KEY], ["holder"]) == ["lost"]
