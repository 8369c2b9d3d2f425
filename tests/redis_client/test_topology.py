"""A single server and a master that Sentinels name."""

import pytest

from service.gateway import BearerLookup, StoreUnavailable
from service.gateway.access_record import PROBE_KEYS
from service.redis_client.managed_connection import HEARTBEAT_SECONDS, WATCH_SECONDS, ConnectionOptions
from service.redis_client.router import Router
from service.redis_client.sentinels import Sentinels
from service.redis_client.url import parse_redis_url
from tests.redis_client.lookups import lookup_at, remember
from tests.redis_client.moving_masters import (
    answer_of,
    comes_to,
    demote,
    name,
    put_token,
    say_master,
    sentinel_of,
    url_of,
)
from tests.redis_client.settled_time import STEP_SECONDS, SettledTime
from tests.support.servers import RedisServer
from tests.support.waiting import until

ROLE_SECONDS = 0.5
"""The interval at which a server is asked whether it is a master."""


@pytest.mark.clause("decided-i8-fail-closed")
async def test_replica_is_reported_as_a_replica(servers: list[RedisServer]) -> None:
    token = put_token(servers[0])
    demote(servers[0])
    async with lookup_at(servers[0].url) as bearer:
        with pytest.raises(StoreUnavailable, match="this server is not the master"):
            await bearer.lookup(token)


@pytest.mark.clause("decided-redis-sentinel", "decided-memory-follows-redis")
async def test_master_dropped_by_sentinels_is_left(settled_time: SettledTime, servers: list[RedisServer]) -> None:
    """A cut network can keep a master from hearing of its successor."""
    old, new = put_token(servers[0]), put_token(servers[1])
    async with sentinel_of(servers[0]) as sentinel, lookup_at(url_of(sentinel)) as bearer:
        await remember(bearer, old)
        heard = sentinel.count("SENTINEL")
        name(sentinel, say_master(servers[0], ip="", port=""))  # this counts as no answer
        await settled_time.let_pass_until(lambda: sentinel.count("SENTINEL") > heard, WATCH_SECONDS)
        assert await bearer.lookup(old)

        name(sentinel, say_master(servers[1]))
        await comes_to(settled_time, bearer, old, False, WATCH_SECONDS)
        await remember(bearer, new)
        with servers[0].connect() as client:
            assert not any(each["name"] == "token-lookups" for each in client.client_list())
    await until(lambda: sentinel.connected == 0)


@pytest.mark.clause("decided-redis-sentinel", "decided-redis-users")
async def test_sentinel_without_a_password_gets_none(servers: list[RedisServer]) -> None:
    async with sentinel_of(servers[0]) as sentinel:
        sentinels = Sentinels(parse_redis_url(url_of(sentinel).replace("//", "//ann:hunter2@")))
        assert await sentinels.get_master() == ("127.0.0.1", servers[0].port)
        await sentinels.close()

        assert b"hunter2" not in [word for command in sentinel.heard for word in command]


@pytest.mark.clause("decided-gateway-stops-trusting", "decided-i8-fail-closed")
@pytest.mark.parametrize("seconds", [0.0, 0.24, 0.48])
async def test_demoted_master_is_not_trusted(
    settled_time: SettledTime, servers: list[RedisServer], seconds: float
) -> None:
    """`seconds` lie between a heartbeat and the demotion. A replica is never told of revocations at its successor."""
    token = put_token(servers[0])
    router = Router(ConnectionOptions(parse_redis_url(servers[0].url), "requests", probe_keys=PROBE_KEYS))
    bearer = BearerLookup(router)
    await remember(bearer, token)
    await settled_time.let_pass(4 * HEARTBEAT_SECONDS + seconds)
    demote(servers[0])
    demoted_at = live_at = settled_time.read()
    await router.ask("access:other", ("GET", "access:other"), is_read=True)  # the replica answers

    while settled_time.read() < demoted_at + 2:
        if await settled_time.run(answer_of(bearer, token), 1):
            live_at = settled_time.read()
        await settled_time.let_pass(STEP_SECONDS)

    assert live_at <= demoted_at + ROLE_SECONDS + STEP_SECONDS
    await router.close()
