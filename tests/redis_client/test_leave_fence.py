"""lua/leave_fence.lua"""

import redis

from service.redis_client.script import OWN_SCRIPTS
from service.store.keys import fence_key
from service.worker import Worker
from tests.conftest import Elapsed

KEY = fence_key("0a3")
LEAVE = OWN_SCRIPTS["leave_fence"]


async def test_it_changes_something_each_time_and_leaves_one_small_key(
    worker: Worker, store: redis.Redis, elapsed: Elapsed
) -> None:
    for _ in range(3):
        before = store.info("persistence")["rdb_changes_since_last_save"]
        assert await worker.redis.run(LEAVE, fence_key=KEY, lifetime_ms=60_000) == ["left"]
        assert store.info("persistence")["rdb_changes_since_last_save"] == before + 1

    assert store.get(KEY) == ""
    assert elapsed.leaves(int(store.pttl(KEY)), 60_000)


async def test_full_redis_accepts_a_repeated_mark(worker: Worker, store: redis.Redis, elapsed: Elapsed) -> None:
    await worker.redis.run(LEAVE, fence_key=KEY, lifetime_ms=60_000)
    store.config_set("maxmemory", 1)
    try:
        assert await worker.redis.run(LEAVE, fence_key=KEY, lifetime_ms=120_000) == ["left"]
    finally:
        store.config_set("maxmemory", 0)

    assert elapsed.leaves(int(store.pttl(KEY)), 120_000)
