"""A link to a server whose clock does what no clock should do, that is slow, dies at once, or cannot serve."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from redis.exceptions import ReadOnlyError

from service.store.links import (
    BEAT_SECONDS,
    DRIFT_SECONDS,
    LONG_PAUSE_SECONDS,
    LONGEST_SILENCE_SECONDS,
    STABLE_SECONDS,
    TRUSTED_SECONDS,
    Link,
    read_clock,
)
from service.store.redis_url import Node
from service.store.wire import WireLost, as_it_came
from tests.fair_clock import read_fair_clock
from tests.faults.stage import until
from tests.store.scripted_redis import ScriptedRedis, scripted_redis


class Memory:
    """What a link tells to forget."""

    def __init__(self) -> None:
        self.told: list[Sequence[bytes] | None] = []

    @property
    def emptied(self) -> int:
        return self.told.count(None)


async def find_node(scripted: ScriptedRedis) -> Node:
    return scripted.url.nodes[0]


@asynccontextmanager
async def link_to(scripted: ScriptedRedis, memory: Memory) -> AsyncIterator[Link]:
    link = Link(scripted.url, lambda: find_node(scripted), memory.told.append, purpose="lookups", is_tracked=True)
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


@pytest.mark.clause("decided-gateway-stops-trusting")
async def test_trust_is_reckoned_from_when_the_beat_was_sent() -> None:
    """Whatever happened at the server after it answered is not vouched for, however long the answer was under way."""
    arrived: list[float] = []

    def slowly(command: list[bytes]) -> float:
        if command != [b"TIME"]:
            return 0
        arrived.append(read_clock())
        return 0.2

    async with scripted_redis() as scripted:
        scripted.delay = slowly
        async with link_to(scripted, Memory()) as link:
            first = link.trusted_until
            await until(lambda: link.trusted_until > first)

            assert first - TRUSTED_SECONDS <= arrived[0]
            assert link.trusted_until - TRUSTED_SECONDS <= arrived[1]


@pytest.mark.clause("decided-redis-away")
async def test_a_call_does_not_wait_for_a_slow_beat_and_for_one_that_is_never_answered() -> None:
    async with scripted_redis() as scripted, link_to(scripted, Memory()) as link:
        is_slow = asyncio.Event()

        def slow_once_and_then_mute(command: list[bytes]) -> float:
            if is_slow.is_set():
                return 60
            is_slow.set()
            return TRUSTED_SECONDS - 2 * BEAT_SECONDS

        scripted.delay = slow_once_and_then_mute
        await is_slow.wait()
        asked = read_fair_clock()
        with pytest.raises(WireLost, match="no answer within 1 s"):
            await link.call("PING")

        assert read_fair_clock() - asked < LONGEST_SILENCE_SECONDS


@pytest.mark.clause("decided-gateway-stops-trusting")
async def test_nothing_is_trusted_until_the_check_of_the_beat_has_passed() -> None:
    checks: list[asyncio.Future[None]] = []

    async def check(_: object) -> None:
        checks.append(asyncio.get_running_loop().create_future())
        await checks[-1]

    async with scripted_redis() as scripted:
        link = Link(
            scripted.url,
            lambda: find_node(scripted),
            Memory().told.append,
            purpose="lookups",
            is_tracked=True,
            check=check,
        )
        await until(lambda: len(checks) == 1)
        assert (link.is_up, link.trusted_until) == (False, 0)

        checks[0].set_result(None)
        await until(lambda: len(checks) == 2)
        first = link.trusted_until
        assert first > read_clock()

        checks[1].set_result(None)
        await until(lambda: len(checks) == 3)
        assert link.trusted_until > first

        checks[2].set_exception(ReadOnlyError("no master"))
        await until(lambda: not link.is_up)
        assert link.trusted_until == 0
        await link.close()


@pytest.mark.clause("decided-gateway-stops-trusting")
async def test_a_wire_that_dies_in_one_piece_with_the_answer_to_its_beat_is_never_used() -> None:
    async with scripted_redis() as scripted:
        scripted.last_words = b"!?"
        link = Link(scripted.url, lambda: find_node(scripted), Memory().told.append, purpose="lookups", is_tracked=True)
        while scripted.accepted < 2:
            assert not link.is_up
            assert link.trusted_until == 0
            await asyncio.sleep(0)

        scripted.last_words = None
        await until(lambda: link.is_up)
        scripted.last_words = b"!?"
        await until(lambda: not link.is_up)
        accepted = scripted.accepted
        while scripted.accepted == accepted:
            assert not link.is_up
            assert link.trusted_until == 0
            await asyncio.sleep(0)
        await link.close()


@pytest.mark.clause("decided-redis-away")
@pytest.mark.parametrize(
    ("hello", "last_words", "most"),
    [(b"-LOADING not yet\r\n", None, 7), (b"%1\r\n+role\r\n+master\r\n", b"", 2)],
    ids=["before its first answer", "after the first beat"],
)
async def test_a_server_that_ends_every_connection_sees_few(hello: bytes, last_words: bytes | None, most: int) -> None:
    async with scripted_redis() as scripted:
        scripted.hello, scripted.last_words = hello, last_words
        link = Link(scripted.url, lambda: find_node(scripted), Memory().told.append, purpose="lookups", is_tracked=True)
        await asyncio.sleep(0.6)  # the time span is the point
        await link.close()

        assert 2 <= scripted.accepted <= most


@pytest.mark.clause("decided-redis-away")
async def test_after_a_connection_that_lasted_there_is_no_pause() -> None:
    async with scripted_redis() as scripted, link_to(scripted, Memory()) as link:
        connected_at = time.monotonic()
        await until(lambda: time.monotonic() > connected_at + STABLE_SECONDS + 0.1)
        assert scripted.accepted == 1

        left_at = time.monotonic()
        scripted.hang_up()
        await until(lambda: scripted.accepted == 2 and link.is_up)

        assert time.monotonic() - left_at < LONG_PAUSE_SECONDS / 2


async def test_a_closed_link_says_so_to_who_asks_and_to_who_waited() -> None:
    async with scripted_redis() as scripted:
        scripted.delay = lambda command: 10 if command[0] == b"HELLO" else 0
        link = Link(scripted.url, lambda: find_node(scripted), Memory().told.append, purpose="lookups", is_tracked=True)
        waiting = asyncio.create_task(link.send(("GET", "key"), as_it_came, is_tracked=True))
        await until(lambda: scripted.count("HELLO") == 1)

        await link.close("this node is gone")

        with pytest.raises(WireLost, match="this node is gone"):
            await waiting
        with pytest.raises(WireLost, match="this node is gone"):
            await link.send(("GET", "key"), as_it_came, is_tracked=True)
