"""The probe behind /readyz: it runs a script and writes, and looks at the policy of eviction."""

from collections.abc import Iterator

import pytest
import redis

from service.store.reports.readiness import find_obstacle
from service.worker import Worker


@pytest.fixture
def eviction(store: redis.Redis) -> Iterator[redis.Redis]:
    """A server whose eviction policy may be changed for a test."""
    yield store
    store.config_set("maxmemory-policy", "noeviction")


@pytest.mark.clause("decided-readyz")
async def test_a_store_that_works_has_no_obstacle(parts: Worker) -> None:
    assert await find_obstacle(parts.redis) is None


@pytest.mark.clause("decided-i6-everything-expires")
async def test_the_probe_writes_a_key_that_ends_by_itself(parts: Worker, store: redis.Redis) -> None:
    await find_obstacle(parts.redis)

    assert 0 < int(store.pttl("probe:{registry}")) <= 10_000


@pytest.mark.clause("decided-readyz-eviction")
@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
async def test_a_store_that_may_evict_is_an_obstacle(parts: Worker, eviction: redis.Redis, policy: str) -> None:
    eviction.config_set("maxmemory-policy", policy)

    assert f"maxmemory-policy is {policy}; it must be noeviction" == await find_obstacle(parts.redis)


async def test_a_store_that_forgot_our_scripts_is_told_them_again(parts: Worker, store: redis.Redis) -> None:
    await find_obstacle(parts.redis)
    store.script_flush()

    assert await find_obstacle(parts.redis) is None
