"""The handshake of a connection: any address of a name."""

import asyncio
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import pytest

from service.redis_client.connection import ADDRESS_PAUSE_SECONDS, Connection, open_connection
from tests.redis_client.host_names import resolve
from tests.redis_client.scripted_redis import ScriptedRedis, scripted_redis
from tests.support.loop_time import LoopTime
from tests.support.waiting import result_of, run_loop_once, until


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


async def open_at(scripted: ScriptedRedis, name: str) -> Connection:
    url = replace(scripted.url, nodes=((name, scripted.port),))
    return await open_connection(url, url.nodes[0], "test")


@pytest.mark.clause("decided-redis-away")
async def test_silent_address_does_not_block_the_next(monkeypatch: pytest.MonkeyPatch, held_time: LoopTime) -> None:
    tried: list[str] = []
    loop = asyncio.get_running_loop()
    sock_connect = loop.sock_connect

    async def connect(sock: socket.socket, address: tuple[str, int]) -> None:
        tried.append(address[0])
        await sock_connect(sock, address)

    monkeypatch.setattr(loop, "sock_connect", connect)
    monkeypatch.setattr(random, "sample", lambda addresses, _: addresses)
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
async def test_addresses_are_tried_in_random_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one may take connections, and never say a word."""
    heard = asyncio.Event()

    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        heard.set()
        with suppress(OSError):
            await reader.read()
        writer.close()

    async with scripted_redis() as scripted, await asyncio.start_server(stay_silent, "127.0.0.3", scripted.port):
        resolve(monkeypatch, "redis.example", "127.0.0.3", "127.0.0.1")
        monkeypatch.setattr(random, "sample", lambda addresses, _: addresses)
        opening = asyncio.create_task(open_at(scripted, "redis.example"))
        await until(heard.is_set)
        assert scripted.accepted == 0
        opening.cancel()
        await asyncio.wait({opening})

        monkeypatch.setattr(random, "sample", lambda addresses, _: addresses[::-1])
        connection = await result_of(open_at(scripted, "redis.example"))

        assert connection.get_address() == "127.0.0.1"
        connection.close("the test is over")
