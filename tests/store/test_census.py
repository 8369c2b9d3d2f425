"""The number of sessions: exact if there are few, estimated if there are many."""

from collections.abc import AsyncIterator

import pytest
import redis

from service.redis_client.url import parse_redis_url
from service.store.client import StoreClient
from service.store.reports.session_count import COUNTED_KEYS, CountingForbidden, estimate_session_count
from tests.conftest import AnyRedis
from tests.store.filling import fill


@pytest.fixture
async def connection(redis_server: AnyRedis, store: redis.Redis) -> AsyncIterator[StoreClient]:
    connection = StoreClient(parse_redis_url(redis_server.url))
    yield connection
    await connection.close()


async def test_few_keys_are_counted_exactly(connection: StoreClient, store: redis.Redis) -> None:
    assert await estimate_session_count(connection) == (0, 0)

    fill(store, sessions=1500, access_tokens=2200, others=COUNTED_KEYS - 3700)

    assert await estimate_session_count(connection) == (1500, 2200)


async def test_many_keys_are_estimated_within_15_percent(connection: StoreClient, store: redis.Redis) -> None:
    fill(store, sessions=10_000, access_tokens=9_000, others=1_000)

    assert await estimate_session_count(connection) == pytest.approx((10_000, 9_000), rel=0.15)


@pytest.mark.single_server(reason="its users are made on one server")
@pytest.mark.parametrize("command", ["dbsize", "randomkey"])
async def test_missing_permission_differs_from_an_outage(
    redis_server: AnyRedis, store: redis.Redis, command: str
) -> None:
    store.execute_command("ACL", "SETUSER", "blind", "reset", "on", ">word", "~*", "+@all", f"-{command}")  # type: ignore[no-untyped-call]
    fill(store, sessions=COUNTED_KEYS, access_tokens=1)
    connection = StoreClient(parse_redis_url(redis_server.url.replace("//", "//blind:word@")))

    with pytest.raises(CountingForbidden, match="NOPERM"):
        await estimate_session_count(connection)
    await connection.close()
    store.acl_deluser("blind")
