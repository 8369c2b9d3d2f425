"""A link to a server whose clock does what no clock should do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from service.store.links import BEAT_SECONDS, DRIFT_SECONDS, Link
from service.store.redis_url import Node
from tests.faults.stage import until
from tests.store.scripted_redis import ScriptedRedis, scripted_redis


class Memory:
    """What a link tells to forget."""

    def __init__(self) -> None:
        self.told: list[Sequence[bytes] | None] = []

    @property
    def emptied(self) -> int:
        return self.told.count(None)


@asynccontextmanager
async def link_to(scripted: ScriptedRedis, memory: Memory) -> AsyncIterator[Link]:
    async def find_node() -> Node:
        return scripted.url.nodes[0]

    link = Link(scripted.url, find_node, memory.told.append, is_tracked=True)
    await until(lambda: link.is_up)
    yield link
    await link.close()


@pytest.mark.clause("decided-i9-one-clock")
async def test_deadlines_are_those_of_redis_however_wrong_our_clock_is() -> None:
    async with scripted_redis() as scripted:
        scripted.clock = lambda: time.time() + 86_400
        async with link_to(scripted, Memory()) as link:
            now_ms = (time.time() + 86_400) * 1000

            assert abs(link.deadline(now_ms + 60_000) - (time.monotonic() + 60)) < 0.2
            assert link.deadline(now_ms + 60_000) < time.monotonic() + 60
            assert abs((link.now_ms() or 0) - now_ms) < 200


@pytest.mark.clause("decided-i9-one-clock", "decided-memory-follows-redis")
async def test_when_the_clock_of_redis_leaps_ahead_memory_is_emptied() -> None:
    """What it reckoned as the end of each token would come too late."""
    async with scripted_redis() as scripted:
        memory = Memory()
        async with link_to(scripted, memory) as link:
            emptied = memory.emptied
            scripted.clock = lambda: time.time() + 10
            await until(lambda: memory.emptied > emptied)

            assert abs((link.now_ms() or 0) - (time.time() + 10) * 1000) < 200
            assert memory.emptied == emptied + 1


@pytest.mark.clause("decided-i9-one-clock")
async def test_when_the_clock_of_redis_falls_back_only_new_deadlines_follow() -> None:
    """What is remembered ends early then, and Redis is asked."""
    async with scripted_redis() as scripted:
        memory = Memory()
        async with link_to(scripted, memory) as link:
            emptied = memory.emptied
            scripted.clock = lambda: time.time() - 10
            await until(lambda: (link.now_ms() or 0) < (time.time() - 9) * 1000)

            assert memory.emptied == emptied


@pytest.mark.clause("decided-i9-one-clock")
async def test_a_clock_that_trembles_moves_nothing() -> None:
    async with scripted_redis() as scripted:
        memory = Memory()
        async with link_to(scripted, memory) as link:
            emptied, lead = memory.emptied, link.deadline(0)
            trusted = link.trusted_until
            scripted.clock = lambda: time.time() + DRIFT_SECONDS / 2
            await until(lambda: link.trusted_until > trusted + BEAT_SECONDS)

            assert memory.emptied == emptied
            assert link.deadline(0) == lead


@pytest.mark.clause("decided-memory-follows-redis")
async def test_news_of_keys_and_of_everything_is_passed_on() -> None:
    async with scripted_redis() as scripted:
        memory = Memory()
        async with link_to(scripted, memory):
            memory.told.clear()
            scripted.say(b">2\r\n$10\r\ninvalidate\r\n*2\r\n$3\r\none\r\n$3\r\ntwo\r\n")
            scripted.say(b">2\r\n$10\r\ninvalidate\r\n_\r\n")
            scripted.say(b">2\r\n$5\r\nother\r\n_\r\n")
            await until(lambda: len(memory.told) >= 2)
            await asyncio.sleep(0)

            assert memory.told == [[b"one", b"two"], None]


async def test_the_log_hears_once_that_the_connection_ended_that_none_is_to_be_had_and_that_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scripted = ScriptedRedis()
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", scripted.port)
    caplog.set_level("INFO", "service.store")
    async with link_to(scripted, Memory()) as link:
        server.close()
        scripted.hang_up()
        await until(lambda: "no connection" in caplog.text)
        told = len(caplog.records)
        await until(lambda: not link.is_up)
        server = await asyncio.start_server(scripted.serve, "127.0.0.1", scripted.port)
        await until(lambda: link.is_up)

        to = f"for lookups to 127.0.0.1:{scripted.port}"
        assert told == 3
        for record, (level, message) in zip(
            caplog.records,
            [
                ("INFO", f"connected {to}"),
                ("WARNING", f"the connection {to} ended: the server closed the connection"),
                ("WARNING", f"no connection {to}: ConnectionRefusedError"),
                ("WARNING", f"connected {to} again, after 0."),
            ],
            strict=True,
        ):
            assert record.levelname == level
            assert record.getMessage().startswith(message)
    server.close()
