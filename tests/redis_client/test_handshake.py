"""The handshake of a connection: one round trip, and any address of a name."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace

import pytest

from service.redis_client.connection import ADDRESS_PAUSE_SECONDS, Connection, open_connection
from service.redis_client.managed_connection import ManagedConnection
from service.redis_client.options import ConnectionOptions
from service.redis_client.url import Node, parse_redis_url
from tests.redis_client.host_names import resolve
from tests.redis_client.listener import Memory
from tests.redis_client.scripted_redis import ScriptedRedis, scripted_redis
from tests.support.loop_time import LoopTime
from tests.support.servers import free_port
from tests.support.waiting import result_of, run_loop_once, until


@asynccontextmanager
async def mute_server(address: str, port: int, hear: Callable[[bytes], None] = lambda _: None) -> AsyncIterator[None]:
    """A server that takes connections and says nothing. It ends when its clients have left."""
    handlers: set[asyncio.Task[None]] = set()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 20):
                hear(data)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.ensure_future(listen(reader, writer)))

    async with await asyncio.start_server(accept, address, port):
        yield
        if handlers:
            await asyncio.wait(handlers)


@pytest.mark.clause("decided-redis-away")
async def test_the_handshake_and_the_first_beat_take_one_round_trip(held_time: LoopTime) -> None:
    """The server says nothing until it has heard all of it."""
    heard = bytearray()
    words = (b"HELLO", b"SELECT", b"TRACKING", b"TIME")
    port = free_port()
    async with mute_server("127.0.0.1", port, heard.extend):
        url = parse_redis_url(f"redis://127.0.0.1:{port}/3")
        master = ManagedConnection(ConnectionOptions(url, "lookups", Memory()), lambda: find(url.nodes[0]))
        await until(lambda: all(word in heard for word in words))
        await master.close()


async def find(node: Node) -> Node:
    return node


@contextmanager
def silent_address(port: int) -> Iterator[str]:
    """Yield an address that ignores attempts to connect, because the queue of its socket is full."""
    address = "127.0.0.2"
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind((address, port))
        server.listen(0)
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((address, port))
        yield address


async def open_at(scripted: ScriptedRedis, name: str, first_address: int = 0) -> Connection:
    url = replace(scripted.url, nodes=((name, scripted.port),))
    return await open_connection(url, url.nodes[0], "test", first_address=first_address)


@pytest.mark.clause("decided-redis-away")
async def test_an_address_that_stays_silent_does_not_keep_us_from_the_next(
    monkeypatch: pytest.MonkeyPatch, held_time: LoopTime
) -> None:
    tried: list[str] = []
    loop = asyncio.get_running_loop()
    sock_connect = loop.sock_connect

    async def connect(sock: socket.socket, address: tuple[str, int]) -> None:
        tried.append(address[0])
        await sock_connect(sock, address)

    monkeypatch.setattr(loop, "sock_connect", connect)
    async with scripted_redis() as scripted:
        with silent_address(scripted.port) as silent:
            resolve(monkeypatch, "redis.example", silent, "127.0.0.1")
            opening = asyncio.create_task(open_at(scripted, "redis.example"))
            await until(lambda: tried == [silent])
            held_time.advance(ADDRESS_PAUSE_SECONDS - 0.001)
            for _ in range(20):
                await run_loop_once()
            assert tried == [silent]
            held_time.advance(0.001)
            await until(opening.done)
            connection = opening.result()

        assert connection.get_address() == "127.0.0.1"
        connection.close("the test is over")


@pytest.mark.clause("decided-redis-away")
async def test_each_attempt_begins_with_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one may take connections, and never say a word."""
    heard = bytearray()
    async with scripted_redis() as scripted, mute_server("127.0.0.3", scripted.port, heard.extend):
        resolve(monkeypatch, "redis.example", "127.0.0.3", "127.0.0.1")
        opening = asyncio.create_task(open_at(scripted, "redis.example", first_address=2))
        await until(lambda: b"HELLO" in heard)
        assert scripted.accepted == 0
        opening.cancel()
        await asyncio.wait({opening})

        connection = await result_of(open_at(scripted, "redis.example", first_address=3))

        assert connection.get_address() == "127.0.0.1"
        connection.close("the test is over")


@pytest.mark.clause("decided-redis-away")
async def test_where_no_address_answers_all_errors_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_redis() as scripted:
        resolve(monkeypatch, "redis.example", "127.0.0.2", "127.0.0.3")

        with pytest.raises(ConnectionError) as failed:
            await open_at(scripted, "redis.example")

    assert "127.0.0.2" in str(failed.value)
    assert "127.0.0.3" in str(failed.value)


@pytest.mark.clause("decided-redis-away")
async def test_an_ip_address_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up takes a thread of the event loop's pool, and all of them may wait for name servers."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a look-up")

    async with scripted_redis() as scripted:
        monkeypatch.setattr(socket, "getaddrinfo", fail)
        connection = await open_connection(scripted.url, scripted.url.nodes[0], "test")

        connection.close("the test is over")
