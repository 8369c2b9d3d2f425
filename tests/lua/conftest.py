"""The fixtures of the tests that run scripts on fakeredis."""

from collections.abc import AsyncIterator, Iterator

import fakeredis
import pytest
import redis

from tests.conftest import MakeSettings
from tests.lua.comparing import ComparingClient
from tests.lua.fake_redis import FakeStoreClient, ServerClock, moving_server_clock
from tests.lua.store_objects import StoreObjects


@pytest.fixture
def server_clock() -> Iterator[ServerClock]:
    with moving_server_clock() as clock:
        yield clock


@pytest.fixture
def server(server_clock: ServerClock) -> fakeredis.FakeServer:
    return fakeredis.FakeServer(server_type="redis", version=(7, 0))


@pytest.fixture
def fake(server: fakeredis.FakeServer) -> redis.Redis:
    """A plain client of fakeredis."""
    return fakeredis.FakeRedis(server=server, protocol=2, decode_responses=True)


@pytest.fixture
def objects(server: fakeredis.FakeServer) -> StoreObjects:
    """The store on fakeredis."""
    return StoreObjects(FakeStoreClient(server))


@pytest.fixture
async def comparing(
    make_settings: MakeSettings,
    store: redis.Redis,
    server: fakeredis.FakeServer,
    fake: redis.Redis,
    server_clock: ServerClock,
) -> AsyncIterator[ComparingClient]:
    """A client that runs each script on the real server and on fakeredis, and compares."""
    client = ComparingClient(make_settings(), store, FakeStoreClient(server), fake, server_clock)
    yield client
    await client.close()
