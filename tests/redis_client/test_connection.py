"""A pipelined connection: answers in order, whole or in pieces, and answers that make no sense."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from service.redis_client.connection import Connection, open_connection
from service.redis_client.deadline import ConnectionLost, ResponseError
from tests.redis_client.scripted_redis import INVALIDATE, ScriptedRedis, bulk, scripted_redis
from tests.support.waiting import until

pytestmark = pytest.mark.clause("decided-one-connection-many-answers")


class ConnectionEvents:
    """The events that a connection reports to its owner."""

    def __init__(self) -> None:
        self.pushes: list[Any] = []
        self.losses = 0

    def lose(self) -> None:
        self.losses += 1


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedRedis]:
    async with scripted_redis() as scripted:
        scripted.answer = lambda command: bulk(command[-1])
        yield scripted


@asynccontextmanager
async def wire_to(scripted: ScriptedRedis, heard: ConnectionEvents) -> AsyncIterator[Connection]:
    connection = await open_connection(scripted.url, scripted.url.nodes[0], "test", heard.pushes.append, heard.lose)
    yield connection
    connection.close("the test is over")


@pytest.mark.parametrize("slice_bytes", [1, 7, 1 << 16])
async def test_split_replies_reach_their_own_calls(scripted: ScriptedRedis, slice_bytes: int) -> None:
    scripted.slice_bytes = slice_bytes
    async with wire_to(scripted, ConnectionEvents()) as connection:
        answers = await asyncio.gather(*(connection.call("GET", f"key {n}") for n in range(200)))

    assert answers == [f"key {n}".encode() for n in range(200)]


async def test_abandoned_answer_reaches_no_later_call(scripted: ScriptedRedis) -> None:
    async with wire_to(scripted, ConnectionEvents()) as connection:
        calls = [asyncio.create_task(connection.call("GET", f"key {n}")) for n in range(20)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()

        assert await asyncio.gather(*calls[1::2]) == [f"key {n}".encode() for n in range(1, 20, 2)]


async def test_an_error_is_the_answer_to_its_own_call(scripted: ScriptedRedis) -> None:
    scripted.answer = lambda command: b"-MOVED 1 host:1\r\n" if command[-1] == b"bad" else bulk(command[-1])
    async with wire_to(scripted, ConnectionEvents()) as connection:
        good, bad, last = await asyncio.gather(
            *(connection.call("GET", key) for key in ("good", "bad", "last")), return_exceptions=True
        )

    assert (good, last) == (b"good", b"last")
    assert isinstance(bad, ResponseError)
    assert str(bad) == "MOVED 1 host:1"


async def test_answers_are_decoded_in_stream_order(scripted: ScriptedRedis) -> None:
    """The answer and the news that follows it come in one piece; who waits for the answer runs only after both."""
    heard = ConnectionEvents()
    scripted.answer = lambda command: bulk(b"old") + INVALIDATE % (len(command[-1]), command[-1])

    def take(answer: bytes) -> bytes:
        heard.pushes.append("taken")
        return answer

    async with wire_to(scripted, heard) as connection:
        assert await connection.send(("GET", "key"), take) == b"old"
        await until(lambda: len(heard.pushes) == 2)

    assert heard.pushes == ["taken", [b"invalidate", [b"key"]]]


@pytest.mark.parametrize("garbage", [b"!?", b"HTTP/1.1 400 Bad Request\r\n\r\n", b":1\r\n:2\r\n", b"*x\r\n"])
async def test_garbage_ends_the_connection(scripted: ScriptedRedis, garbage: bytes) -> None:
    """An answer too many, too: whose the next one is could not be told."""
    heard = ConnectionEvents()
    scripted.answer = lambda command: garbage if command[-1] == b"bad" else bulk(command[-1])
    async with wire_to(scripted, heard) as connection:
        calls = [asyncio.create_task(connection.call("GET", key)) for key in ("good", "bad")]
        await until(connection.lost.done)

        assert heard.losses == 1
        assert await calls[0] == b"good"
        with pytest.raises(ConnectionLost, match="already closed"):
            await connection.call("GET", "good")
    await asyncio.gather(*calls, return_exceptions=True)


async def test_error_texts_never_contain_the_redis_password(scripted: ScriptedRedis) -> None:
    """Redis repeats an unknown command in its error, and HELLO has the password."""
    scripted.hello = b"-ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'default' 'hunter2'\r\n"
    url, heard = replace(scripted.url, password="hunter2"), ConnectionEvents()

    with pytest.raises(ResponseError) as refused:
        await open_connection(url, url.nodes[0], "test", heard.pushes.append, heard.lose)

    assert str(refused.value) == "ERR unknown command 'HELLO'"


async def test_closed_connection_is_noticed_at_once(scripted: ScriptedRedis) -> None:
    """A turn of the event loop later, a lookup could still be answered from memory."""
    loop, heard = asyncio.get_running_loop(), ConnectionEvents()
    transport, connection = await loop.create_connection(
        lambda: Connection(heard.pushes.append, heard.lose), "127.0.0.1", scripted.port
    )
    assert await connection.call("GET", "key") == b"key"

    scripted.hang_up()
    while not transport.is_closing():  # noqa: ASYNC110 - each turn is looked at
        await asyncio.sleep(0)

    assert heard.losses == 1
    assert connection.lost.done()
