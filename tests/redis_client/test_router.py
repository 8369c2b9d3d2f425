"""The router that a worker's requests, lookups and registry share: tracking, invalidations, and what is sent again."""

import asyncio
from collections.abc import Sequence

import pytest
import redis

from service.gateway.access_record import PROBE_KEYS
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.managed_connection import HEARTBEAT_SECONDS, STABLE_SECONDS, WATCH_SECONDS, ConnectionOptions
from service.redis_client.router import Router
from service.redis_client.url import parse_redis_url
from tests.redis_client.moving_masters import name, say_master, sentinel_of, url_of
from tests.redis_client.scripted_redis import INVALIDATE, ScriptedRedis, scripted_redis
from tests.redis_client.settled_time import SettledTime
from tests.support.redis_monitor import ONE_SERVER
from tests.support.servers import RedisServer
from tests.support.waiting import MAX_WAIT_SECONDS

MANY = 300


def make_router(url: str) -> Router:
    return Router(ConnectionOptions(parse_redis_url(url), "requests", probe_keys=PROBE_KEYS))


def url_of_server(scripted: ScriptedRedis) -> str:
    return f"redis://127.0.0.1:{scripted.port}"


async def ask(router: Router, key: str, *, is_tracked: bool = False) -> object:
    return await router.ask(key, ("GET", key), is_read=True, is_tracked=is_tracked)


@pytest.mark.clause("decided-memory-follows-redis")
async def test_each_cache_gets_the_invalidations_of_its_kind_of_key() -> None:
    async with scripted_redis() as scripted:
        router = make_router(url_of_server(scripted))
        tokens: list[Sequence[bytes] | None] = []
        clients: list[Sequence[bytes] | None] = []
        router.listen("access", tokens.append)
        router.listen("client", clients.append)
        await ask(router, "access:one")
        tokens.clear()
        clients.clear()

        scripted.say(
            b">2\r\n$10\r\ninvalidate\r\n*3\r\n$10\r\naccess:one\r\n$10\r\nclient:two\r\n$10\r\naccess:sun\r\n"
        )
        scripted.say(b"".join(INVALIDATE % (len(key), key) for key in (b"accessible", b"family:one", b"\xff", b"")))
        scripted.say(b">2\r\n$10\r\ninvalidate\r\n_\r\n")
        await ask(router, "access:one")  # this answer comes after all invalidations

        assert tokens == [(b"access:one",), (b"access:sun",), None]
        assert clients == [(b"client:two",), None]
        await router.close()


@ONE_SERVER
async def test_only_reads_that_ask_for_it_are_tracked(redis_server: RedisServer, store: redis.Redis) -> None:
    """Many commands are under way at once, and scripts that read the same kind of keys are among them."""
    router = make_router(redis_server.url)
    router.listen("access", lambda _: None)
    script = "return redis.call('GET', KEYS[1])"

    async def run_script(number: int) -> object:
        return await router.ask(f"access:s{number}", ("EVAL", script, 1, f"access:s{number}"))

    await ask(router, "access:first")
    before = store.info("stats")["tracking_total_keys"]
    await asyncio.gather(
        *(
            work
            for number in range(MANY)
            for work in (
                ask(router, f"access:t{number}", is_tracked=True),
                ask(router, f"access:u{number}"),
                run_script(number),
            )
        )
    )

    assert store.info("stats")["tracking_total_keys"] - before == MANY
    await router.close()


@ONE_SERVER
@pytest.mark.clause("decided-redis-away")
async def test_a_pause_of_writes_stops_no_read(redis_server: RedisServer, store: redis.Redis) -> None:
    """Redis reads no more commands of a connection on which a write waits."""
    router = make_router(redis_server.url)
    router.listen("access", lambda _: None)
    write = ("EVAL", "return redis.call('SET', KEYS[1], '1', 'PX', 60000)", 1, "access:written")
    await router.ask("access:written", write)
    store.client_pause(round(MAX_WAIT_SECONDS * 1000), all=False)
    try:
        writes: list[asyncio.Future[object]] = [
            asyncio.ensure_future(router.ask("access:written", write)) for _ in range(MANY)
        ]
        for number in range(MANY):
            await ask(router, f"access:{number}", is_tracked=True)

        assert not any(each.done() for each in writes)
    finally:
        store.client_unpause()
    await asyncio.gather(*writes)
    await router.close()


@pytest.mark.parametrize("is_read", [True, False], ids=["reads", "writes"])
async def test_each_connection_leaves_a_demoted_master(settled_time: SettledTime, is_read: bool) -> None:
    async with scripted_redis() as scripted:
        router = make_router(url_of_server(scripted))
        await router.ask("access:one", ("GET", "access:one"), is_read=is_read)
        scripted.hello = b"%1\r\n+role\r\n+slave\r\n"
        await settled_time.let_pass_until(
            lambda: router.topology.find_connected("access:one", is_read=is_read) is None, 2 * HEARTBEAT_SECONDS
        )
        await router.close()


@pytest.mark.clause("decided-redis-sentinel")
@pytest.mark.parametrize("is_lost", [False, True], ids=["both up", "reads lost"])
async def test_both_connections_follow_the_sentinels(
    settled_time: SettledTime, servers: list[RedisServer], is_lost: bool
) -> None:
    """The old master may be a master still, by its own word. One connection may be at the new master already."""

    async def read_ports() -> list[bytes]:
        command = ("CONFIG", "GET", "port")
        told: list[dict[bytes, bytes]] = [await router.ask("key", command, is_read=each) for each in (True, False)]
        return [each[b"port"] for each in told]

    async with sentinel_of(servers[0]) as sentinel:
        router = make_router(url_of(sentinel))
        assert await read_ports() == [str(servers[0].port).encode()] * 2
        await settled_time.let_pass(2 * STABLE_SECONDS)
        name(sentinel, say_master(servers[1]))
        if is_lost:
            with servers[0].connect() as client:
                (reads,) = [each["id"] for each in client.client_list() if each["name"] == "token-requests"]
                client.client_kill_filter(_id=reads)
        await settled_time.let_pass(2 * WATCH_SECONDS)

        assert await settled_time.run(read_ports(), WATCH_SECONDS) == [str(servers[1].port).encode()] * 2
        await router.close()


def cut_first(scripted: ScriptedRedis, word: bytes) -> None:
    """Let the server close all connections once when it gets a command with this word, before it answers."""
    rest = [True]

    def answer(command: list[bytes]) -> bytes:
        if command[0] == word and rest:
            rest.clear()
            scripted.hang_up()
        return b"+done\r\n"

    scripted.answer = answer


@pytest.mark.clause("decided-i10-own-retry")
@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize("is_connected", [False, True], ids=["at first", "later"])
async def test_only_lost_reads_are_repeated(*, is_connected: bool, together: bool) -> None:
    async with scripted_redis() as scripted:
        router = Router(ConnectionOptions(scripted.url, "requests"))

        async def send(word: str, *, is_read: bool) -> object:
            if together:
                return (await router.ask_many([(word, "key")], is_read=is_read))[0]
            return await router.ask("key", (word, "key"), is_read=is_read)

        if is_connected:
            await send("EXISTS", is_read=True)
            await send("APPEND", is_read=False)
        cut_first(scripted, b"GET")
        assert await send("GET", is_read=True) == b"done"
        cut_first(scripted, b"SET")
        with pytest.raises(StoreUnavailable):
            await send("SET", is_read=False)

        assert (scripted.count("GET"), scripted.count("SET")) == (2, 1)
        await router.close()
