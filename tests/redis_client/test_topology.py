"""A single server and a master that Sentinels name."""

from __future__ import annotations

import pytest

from service.gateway import StoreUnavailable
from service.redis_client.availability import FIRST_PAUSE_SECONDS
from service.redis_client.options import WATCH_SECONDS
from service.redis_client.sentinels import Sentinels
from service.redis_client.url import parse_redis_url
from tests.redis_client.lookups import lookup_at, remember
from tests.redis_client.moving_masters import comes_to, demote, name, put_token, say_master, sentinel_of, url_of
from tests.redis_client.settled_time import SettledTime
from tests.support.servers import RedisServer
from tests.support.waiting import until


@pytest.mark.clause("decided-i8-fail-closed")
async def test_the_address_of_a_replica_is_told_to_be_that(servers: list[RedisServer]) -> None:
    token = put_token(servers[0])
    demote(servers[0])
    async with lookup_at(servers[0].url) as bearer:
        with pytest.raises(StoreUnavailable, match="this server is not the master"):
            await bearer.lookup(token)


@pytest.mark.clause("decided-redis-sentinel", "decided-memory-follows-redis")
async def test_a_master_that_the_sentinels_do_not_name_any_more_is_left_though_it_says_that_it_is_one(
    settled_time: SettledTime, servers: list[RedisServer]
) -> None:
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


@pytest.mark.clause("decided-redis-sentinel", "decided-i8-fail-closed")
async def test_a_sentinel_whose_first_answer_lacks_something_is_asked_again(
    settled_time: SettledTime, servers: list[RedisServer]
) -> None:
    token = put_token(servers[0])
    async with sentinel_of(servers[0]) as sentinel, lookup_at(url_of(sentinel)) as bearer:
        name(sentinel, say_master(servers[0], ip="", port=""))
        with pytest.raises(StoreUnavailable):
            await bearer.lookup(token)

        name(sentinel, say_master(servers[0]))
        await comes_to(settled_time, bearer, token, True, FIRST_PAUSE_SECONDS)


@pytest.mark.clause("decided-redis-sentinel", "decided-redis-users")
async def test_a_sentinel_that_asks_for_no_password_is_sent_none(servers: list[RedisServer]) -> None:
    async with sentinel_of(servers[0]) as sentinel:
        sentinels = Sentinels(parse_redis_url(url_of(sentinel).replace("//", "//ann:hunter2@")))
        assert await sentinels.get_master() == ("127.0.0.1", servers[0].port)
        await sentinels.close()

        assert b"hunter2" not in [word for command in sentinel.heard for word in command]
