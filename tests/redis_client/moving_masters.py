"""Masters that change, as lookups see them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.crypto.keyring import make_access_token
from service.gateway import BearerLookup, StoreUnavailable
from tests.conftest import read_server_ms
from tests.redis_client.scripted_cluster import array, key_of, record
from tests.redis_client.scripted_redis import ScriptedRedis, bulk, scripted_redis
from tests.redis_client.settled_time import STEP_SECONDS, SettledTime
from tests.support.servers import RedisServer, free_port


async def answer_of(bearer: BearerLookup, token: str) -> bool | None:
    """Return whether the token is live, or None for an error."""
    try:
        return await bearer.lookup(token) is not None
    except StoreUnavailable:
        return None


async def comes_to(
    settled_time: SettledTime, bearer: BearerLookup, token: str, answer: bool | None, seconds: float
) -> None:
    """Let time pass until the lookup says so; fails where it does not within these seconds."""
    end = settled_time.read() + seconds
    while await settled_time.run(answer_of(bearer, token), end - settled_time.read()) is not answer:
        assert settled_time.read() < end, f"still not {answer} after {seconds} s"
        await settled_time.let_pass(min(STEP_SECONDS, end - settled_time.read()))


def put_token(server: RedisServer) -> str:
    token = make_access_token("0a3").text
    with server.connect() as client:
        _, _, value = record("0a3", read_server_ms(client)).partition(b"\r\n")
        client.set(key_of(token), value.removesuffix(b"\r\n"), px=600_000)
    return token


def demote(server: RedisServer) -> None:
    """Make the server a replica of a master that does not exist. It goes on answering."""
    with server.connect() as client:
        client.replicaof("127.0.0.1", str(free_port()))


def say_master(server: RedisServer, **others: str) -> bytes:
    """Return a Sentinel's answer about the master. `others` replace fields; a field without a value is left out."""
    counts = dict.fromkeys(("num-slaves", "num-other-sentinels", "quorum"), "0")
    fields = {"name": "tokens", "ip": "127.0.0.1", "port": str(server.port), "flags": "master"} | counts | others
    words = [bulk(word.encode()) for field in fields.items() if field[1] for word in field]
    return array(array(*words))


@asynccontextmanager
async def sentinel_of(server: RedisServer) -> AsyncIterator[ScriptedRedis]:
    async with scripted_redis() as sentinel:
        name(sentinel, say_master(server))
        yield sentinel


def name(sentinel: ScriptedRedis, masters: bytes) -> None:
    sentinel.answer = lambda command: masters if command[0] == b"SENTINEL" else b"+OK\r\n"


def url_of(sentinel: ScriptedRedis) -> str:
    return f"redis+sentinel://127.0.0.1:{sentinel.port}/tokens"
