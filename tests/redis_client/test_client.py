"""The connection to Redis: what counts as an outage, and what as a mistake of our own."""

import pytest

from service.redis_client.deadline import ResponseError, StoreUnavailable
from service.redis_client.url import parse_redis_url
from service.store.client import StoreClient, load_script
from tests.support.servers import RedisServer, free_port

pytestmark = pytest.mark.single_server("each test makes its own URL, of every kind")


async def outage_of(url: str) -> str:
    """Return the message of the outage. A read, a write and a check of the policy must all give the same one."""
    connection = StoreClient(parse_redis_url(url))
    try:
        for call in (
            lambda: connection.read("GET", "key"),
            lambda: connection.write("SET", "key", "1"),
            lambda: connection.read_many([("GET", "key")]),
            lambda: connection.eviction_policies(),
        ):
            with pytest.raises(StoreUnavailable) as outage:
                await call()
    finally:
        await connection.close()
    return str(outage.value)


@pytest.mark.clause("decided-redis-away", "decided-i8-fail-closed")
@pytest.mark.parametrize("kind", ["redis", "redis+cluster", "redis+sentinel"])
async def test_unreachable_server_is_an_outage(kind: str) -> None:
    master = "/main" if kind == "redis+sentinel" else ""

    assert await outage_of(f"{kind}://127.0.0.1:{free_port()}{master}")


@pytest.mark.clause("decided-redis-away", "decided-i8-fail-closed")
async def test_script_without_permission_is_an_outage(redis_server: RedisServer) -> None:
    """Redis words that without NOPERM, and each server in its own way."""
    with redis_server.connect() as client:
        client.acl_setuser(
            "halved", enabled=True, passwords=["+word"], keys=["*"], categories=["+@all"], commands=["-set"]
        )
    connection = StoreClient(parse_redis_url(redis_server.url.replace("//", "//halved:word@")))
    try:
        with pytest.raises(StoreUnavailable):
            await connection.run(load_script("reports/probe_store"), probe_key="probe:{registry}", ttl_ms=1000)
    finally:
        await connection.close()


async def test_programming_error_is_not_an_outage(redis_server: RedisServer) -> None:
    connection = StoreClient(parse_redis_url(redis_server.url))
    with pytest.raises(TypeError):
        await connection.read("GET", None)  # type: ignore[arg-type]
    with pytest.raises(ResponseError, match="user_script"):
        await connection.run(
            load_script("append_events"), streams=["events:{0a3}:x"], most="x", lifetime_ms=1, batches=["{}"]
        )
    with pytest.raises(ResponseError, match="unknown command"):
        await connection.read("GETT", "key")
    await connection.close()
