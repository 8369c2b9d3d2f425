"""The fixtures that the tests of the Redis client share."""

from collections.abc import Iterator

import pytest

from tests.redis_client.settled_time import SettledTime, recording_traffic
from tests.support.loop_time import LoopTime
from tests.support.servers import RedisServer, start_redis, stop


@pytest.fixture
def settled_time(held_time: LoopTime) -> Iterator[SettledTime]:
    """Time stands still. Ask for it before what connects to Redis."""
    with recording_traffic() as traffic:
        yield SettledTime(held_time, traffic)


@pytest.fixture(scope="module")
def built_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    servers = [start_redis(tmp_path_factory.mktemp("server")) for _ in range(2)]
    yield servers
    for server in servers:
        stop(server.process)


@pytest.fixture
def servers(built_servers: list[RedisServer]) -> list[RedisServer]:
    """Two empty masters that know nothing of each other."""
    for server in built_servers:
        with server.connect() as client:
            client.replicaof("NO", "ONE")
            client.flushall()
    return built_servers
