"""How many sessions there are: exact where there are few, near enough where there are many."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis

from service.gateway.access_record import access_key
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.url import parse_redis_url
from service.store.client import StoreClient
from service.store.keys import family_key, index_key
from service.store.reports.session_count import COUNTED_KEYS, CensusForbidden, take_census
from tests.conftest import AnyRedis
from tests.support.servers import free_port


@pytest.fixture
async def connection(redis_server: AnyRedis, store: redis.Redis) -> AsyncIterator[StoreClient]:
    connection = StoreClient(parse_redis_url(redis_server.url))
    yield connection
    await connection.close()


def fill(store: redis.Redis, *, sessions: int, access_tokens: int, others: int = 0) -> None:
    pipeline = store.pipeline(transaction=False)
    for key, number in ((family_key, sessions), (access_key, access_tokens), (index_key, others)):
        for each in range(number):
            pipeline.set(key(f"{each % 4096:03x}", str(each)), "", px=60_000)
    pipeline.execute()


async def test_of_few_each_is_counted(connection: StoreClient, store: redis.Redis) -> None:
    assert await take_census(connection) == (0, 0)

    fill(store, sessions=1500, access_tokens=2200, others=COUNTED_KEYS - 3700)

    assert await take_census(connection) == (1500, 2200)


async def test_of_many_the_number_is_estimated_within_15_percent(connection: StoreClient, store: redis.Redis) -> None:
    fill(store, sessions=10_000, access_tokens=9_000, others=1_000)

    census = await take_census(connection)

    assert census.sessions == pytest.approx(10_000, rel=0.15)
    assert census.access_tokens == pytest.approx(9_000, rel=0.15)


@pytest.mark.single_server(reason="its users are made on one server")
@pytest.mark.parametrize("command", ["dbsize", "randomkey"])
async def test_a_user_who_may_not_ask_is_told_from_an_outage(
    redis_server: AnyRedis, store: redis.Redis, command: str
) -> None:
    store.execute_command("ACL", "SETUSER", "blind", "reset", "on", ">word", "~*", "+@all", f"-{command}")  # type: ignore[no-untyped-call]
    fill(store, sessions=COUNTED_KEYS, access_tokens=1)
    connection = StoreClient(parse_redis_url(redis_server.url.replace("//", "//blind:word@")))

    with pytest.raises(CensusForbidden, match="NOPERM"):
        await take_census(connection)
    await connection.close()
    store.acl_deluser("blind")


async def test_an_outage_is_an_outage() -> None:
    connection = StoreClient(parse_redis_url(f"redis://127.0.0.1:{free_port()}/0"))

    with pytest.raises(StoreUnavailable):
        await take_census(connection)
    await connection.close()
