"""Answers of a server that is no Redis or is broken end the connection, and all waiting calls fail."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.redis_client.client import _parse_info
from service.redis_client.connection import open_connection
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.errors import RedisError
from service.redis_client.slots import parse_own_slots
from service.redis_client.topology import _parse_ranges
from service.redis_client.url import parse_redis_url
from tests.fuzz.generators import bent_bytes, json_values
from tests.support.waiting import MAX_WAIT_SECONDS

HELLO = b"%1\r\n+server\r\n+redis\r\n"
RESP = (
    b"+OK\r\n", b"-ERR no\r\n", b"-MOVED 1 a:1\r\n", b":5\r\n", b"$3\r\nabc\r\n", b"$-1\r\n", b"_\r\n", b"#t\r\n",
    b",nan\r\n", b"*1\r\n$1\r\na\r\n", b"%1\r\n*0\r\n:1\r\n", b"~1\r\n%0\r\n", b">1\r\n+x\r\n",
    b">2\r\n$10\r\ninvalidate\r\n*1\r\n:1\r\n", b"(123456789012345678901234567890\r\n", b"=7\r\ntxt:abc\r\n",
    b"!3\r\nERR\r\n", b"|1\r\n+a\r\n:1\r\n:2\r\n", b"*-1\r\n", b"*9999999999\r\n", b"$9999999999\r\n", b"$-2\r\n",
    b":x\r\n", b"%x\r\n", b"*1\r\n" * 50, b"\r\n", b"\0", b"HTTP/1.1 400\r\n",
)  # fmt: skip
answers = st.lists(st.one_of(bent_bytes(*RESP), st.sampled_from(RESP)), max_size=6)


@given(answers, st.integers(1, 40), st.integers(0, 4))
async def test_every_call_gets_an_answer_or_error(answers: list[bytes], size: int, questions: int) -> None:
    """Cut into pieces at any place, as a network does."""
    lost: list[str] = []
    told: list[Any] = []
    server, port = await _start(b"".join(answers), size)
    async with server:
        url = parse_redis_url(f"redis://127.0.0.1:{port}")
        try:
            connection = await open_connection(
                url, ("127.0.0.1", port), "test", told.append, lambda: lost.append("lost")
            )
        except RedisError:
            return
        asked = [asyncio.ensure_future(connection.call("GET", str(number))) for number in range(questions)]
        async with asyncio.timeout(MAX_WAIT_SECONDS):
            found = await asyncio.gather(*asked, return_exceptions=True)
            await connection.lost

    assert lost == ["lost"]
    assert all(isinstance(one, RedisError) for one in found if isinstance(one, BaseException))
    with pytest.raises(RedisError):
        await connection.call("GET", "after")


async def _start(answer: bytes, size: int) -> tuple[asyncio.Server, int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Says hello, then its piece, and hangs up."""
        with suppress(ConnectionError):
            await reader.read(1)
            writer.write(HELLO)
            for piece in _cut(answer, size):
                writer.write(piece)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


def _cut(answer: bytes, size: int) -> Iterable[bytes]:
    return (answer[start : start + size] for start in range(0, len(answer), size))


RANGE: list[Any] = [0, 16383, [b"127.0.0.1", 7000, b"id"]]


@given(st.one_of(json_values, st.lists(st.one_of(json_values, st.permutations([*RANGE[2], *RANGE])), max_size=3)))
def test_a_map_of_a_cluster_is_read_or_an_error(answer: Any) -> None:
    try:
        ranges = _parse_ranges(answer, ("asked", 1))
    except Exception:  # any: the node is passed by, see tests/store/test_nonsense.py
        return

    assert all(0 <= first <= last < 16384 for first, last, _ in ranges)


@given(st.one_of(st.binary(), bent_bytes(b"# Memory\r\nused_memory:5\r\nmaxmemory_policy:noeviction\r\n")))
def test_any_info_reply_is_parsed(text: bytes) -> None:
    assert all(":" not in name for name in _parse_info(text))


OWN_LINE = (
    b"07c37df 10.0.0.1:6379@16379 myself,master - 0 1426238 4 connected 0-92 94-5460 [93->-292f8b3] [99-<-292f8b3]"
)
OTHER_LINE = b"292f8b3 10.0.0.2:6379@16379,host master - 0 1426238316232 2 connected 5461-10922"


@given(st.one_of(st.binary(), bent_bytes(OWN_LINE, OTHER_LINE, OTHER_LINE + b"\n" + OWN_LINE + b"\n")))
def test_slot_map_is_parsed_or_an_outage(answer: bytes) -> None:
    with suppress(StoreUnavailable):
        found = parse_own_slots(answer)
        assert all(0 <= slot < 100_000 for slot in found.slots | found.leaving | found.arriving)
