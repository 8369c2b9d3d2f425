"""Sentinels and nodes that answer late or not at all."""

import pytest

from service.gateway import StoreUnavailable
from service.redis_client.connection import ASK_PAUSE_SECONDS
from service.redis_client.deadline import DEADLINE_SECONDS
from tests.redis_client.lookups import lookup_at
from tests.redis_client.moving_masters import put_token, sentinel_of, url_of
from tests.redis_client.scripted_cluster import moved, render_map, scripted_cluster
from tests.redis_client.settled_time import SettledTime
from tests.support.servers import RedisServer

LATE_SECONDS = 0.6


@pytest.mark.clause("decided-redis-sentinel", "decided-redis-away")
async def test_silent_sentinel_delays_no_request(settled_time: SettledTime, servers: list[RedisServer]) -> None:
    token = put_token(servers[0])
    async with sentinel_of(servers[0]) as silent, sentinel_of(servers[0]) as good:
        silent.mute()
        async with lookup_at(f"redis+sentinel://127.0.0.1:{silent.port},127.0.0.1:{good.port}/tokens") as bearer:
            assert await settled_time.run(bearer.lookup(token), ASK_PAUSE_SECONDS)


@pytest.mark.clause("decided-redis-sentinel", "decided-redis-away")
async def test_sentinels_that_answer_late_are_waited_for(settled_time: SettledTime, servers: list[RedisServer]) -> None:
    token = put_token(servers[0])
    async with sentinel_of(servers[0]) as sentinel:
        sentinel.delay = lambda _: LATE_SECONDS
        async with lookup_at(url_of(sentinel)) as bearer:
            assert await settled_time.run(bearer.lookup(token), DEADLINE_SECONDS)


@pytest.mark.clause("decided-redis-cluster", "decided-redis-away")
@pytest.mark.parametrize("seconds", [LATE_SECONDS, 10.0])
async def test_slow_node_delays_the_map_briefly(settled_time: SettledTime, seconds: float) -> None:
    async with scripted_cluster(3) as cluster:
        for late in cluster.nodes:
            late.delay = lambda _: seconds
            good = next(node for node in cluster.nodes if node is not late)
            token = cluster.make_token(good)
            async with lookup_at(cluster.url) as bearer:
                assert await settled_time.run(bearer.lookup(token), ASK_PAUSE_SECONDS)

            late.delay = lambda _: 0


@pytest.mark.clause("decided-redis-cluster", "decided-i8-fail-closed")
async def test_node_without_its_preferred_host_name_is_reported() -> None:
    """Such a node calls itself `?`, in maps and in redirections."""
    async with scripted_cluster(2) as cluster, lookup_at(cluster.url) as bearer:
        first, second = cluster.nodes
        token = cluster.make_token(first)
        assert await bearer.lookup(token)
        cluster.say_record = lambda node, key: moved(key, second, host=b"?")
        with pytest.raises(StoreUnavailable, match="cluster-announce-hostname"):
            await bearer.lookup(token)

        cluster.say_map = lambda _: render_map(cluster.ranges, b"?")
        async with lookup_at(cluster.url) as other:
            with pytest.raises(StoreUnavailable, match="cluster-announce-hostname"):
                await other.lookup(token)
