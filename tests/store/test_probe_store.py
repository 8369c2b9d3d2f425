"""The probe behind /readyz, which runs a script, writes, and checks the eviction policy."""

from collections.abc import Iterator

import pytest
import redis

from service.store.reports.readiness import find_obstacle
from service.worker import Worker


@pytest.fixture
def eviction(store: redis.Redis) -> Iterator[redis.Redis]:
    """A server whose eviction policy a test may change."""
    yield store
    store.config_set("maxmemory-policy", "noeviction")


@pytest.mark.clause("decided-readyz")
async def test_a_store_that_works_has_no_obstacle(worker: Worker) -> None:
    assert await find_obstacle(worker.redis) is None


@pytest.mark.clause("decided-readyz-eviction")
@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
async def test_a_store_that_may_evict_is_an_obstacle(worker: Worker, eviction: redis.Redis, policy: str) -> None:
    eviction.config_set("maxmemory-policy", policy)

    assert f"maxmemory-policy is {policy}; it must be noeviction" == await find_obstacle(worker.redis)
