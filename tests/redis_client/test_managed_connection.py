"""A link to a server whose clock does what no clock should do, that is slow, dies at once, or cannot serve."""

import asyncio
import gc
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from service.redis_client.availability import FIRST_PAUSE_SECONDS
from service.redis_client.connection import decode_raw
from service.redis_client.deadline import UNREAD_REPLY_SECONDS, ConnectionLost
from service.redis_client.managed_connection import (
    HEARTBEAT_SECONDS,
    MAX_SILENCE_SECONDS,
    STABLE_SECONDS,
    TRUSTED_SECONDS,
    Check,
    ConnectionOptions,
    ManagedConnection,
)
from service.redis_client.topology import CHECK_IS_MASTER
from service.redis_client.url import Node
from tests.redis_client.scripted_redis import STARTED_AT, ScriptedRedis, read_scripted_clock, scripted_redis
from tests.redis_client.settled_time import SettledTime
from tests.support.loop_time import SAME_SECONDS, LoopTime
from tests.support.waiting import until

NO_CHECK = Check(lambda: None, lambda _: None)

EXACTLY = 1e-5
"""The rounding error of sums of seconds since 1970."""


async def get_node(scripted: ScriptedRedis) -> Node:
    return scripted.url.nodes[0]


def make_link(scripted: ScriptedRedis, check: Check = NO_CHECK) -> ManagedConnection:
    options = ConnectionOptions(scripted.url, "lookups", lambda _: None)
    return ManagedConnection(options, lambda: get_node(scripted), check)


@asynccontextmanager
async def link_to(scripted: ScriptedRedis) -> AsyncIterator[ManagedConnection]:
    master = make_link(scripted)
    await until(lambda: master.is_up)
    try:
        yield master
    finally:
        await master.close()


@pytest.mark.clause("decided-i9-one-clock")
async def test_wrong_local_clock_does_not_move_deadlines(held_time: LoopTime) -> None:
    async with scripted_redis() as scripted:
        scripted.clock = lambda: STARTED_AT + 86_400
        async with link_to(scripted) as master:
            now_ms = (STARTED_AT + 86_400) * 1000

            assert master.deadline(now_ms + 60_000) == pytest.approx(held_time.read() + 60, abs=EXACTLY)
            assert master.now_ms() == pytest.approx(now_ms, abs=1)


@pytest.mark.clause("decided-i9-one-clock")
async def test_a_deadline_is_early_by_the_time_of_an_answer(held_time: LoopTime) -> None:
    """Redis may have read its clock at any moment while the question was under way."""
    async with scripted_redis() as scripted:
        answers = asyncio.Event()
        scripted.waits_for = lambda command: answers if command == [b"TIME"] else None
        scripted.clock = lambda: STARTED_AT
        asked = held_time.read()
        master = make_link(scripted)
        await until(lambda: scripted.count("TIME") == 1)
        held_time.advance(0.3)
        answers.set()
        await until(lambda: master.is_up)

        assert master.deadline(STARTED_AT * 1000 + 60_000) == pytest.approx(asked + 60, abs=EXACTLY)
        await master.close()


@pytest.mark.clause("decided-i9-one-clock", "decided-memory-follows-redis")
async def test_a_leap_of_the_clock_is_heard_of_within_a_second(settled_time: SettledTime) -> None:
    async with scripted_redis() as scripted:
        master = make_link(scripted, check=CHECK_IS_MASTER)
        await until(lambda: master.is_up)
        for leap in (10, 20, 30):
            trust = master.trust
            scripted.clock = lambda leap=leap: read_scripted_clock() + leap  # type: ignore[misc]
            await settled_time.let_pass(2 * HEARTBEAT_SECONDS)

            assert trust.until == 0
            assert master.trust.until == pytest.approx(settled_time.read() + TRUSTED_SECONDS, abs=SAME_SECONDS)
            assert master.now_ms() == pytest.approx((read_scripted_clock() + leap) * 1000, abs=1)
        await master.close()


@pytest.mark.clause("decided-gateway-stops-trusting")
async def test_cache_validity_starts_when_the_heartbeat_is_sent(held_time: LoopTime) -> None:
    """An event at the server after its answer is not covered, however long the answer was on its way."""
    async with scripted_redis() as scripted:
        answers = asyncio.Event()
        scripted.waits_for = lambda command: answers if command == [b"TIME"] else None
        sent = held_time.read()
        master = make_link(scripted)
        await until(lambda: scripted.count("TIME") == 1)
        held_time.advance(0.2)
        answers.set()
        await until(lambda: master.is_up)
        assert master.trust.until == pytest.approx(sent + TRUSTED_SECONDS, abs=SAME_SECONDS)

        answers.clear()
        held_time.advance(HEARTBEAT_SECONDS)
        sent = held_time.read()
        await until(lambda: scripted.count("TIME") == 2)
        held_time.advance(0.2)
        answers.set()
        await until(lambda: master.trust.until == pytest.approx(sent + TRUSTED_SECONDS, abs=SAME_SECONDS))
        await master.close()


@pytest.mark.clause("decided-redis-away")
async def test_call_does_not_wait_for_heartbeats(settled_time: SettledTime) -> None:
    async with scripted_redis() as scripted, link_to(scripted) as master:
        slow, never = asyncio.Event(), asyncio.Event()
        scripted.waits_for = lambda command: slow if command == [b"TIME"] else never
        await settled_time.let_pass_until(lambda: scripted.count("TIME") == 2, HEARTBEAT_SECONDS)
        asked = settled_time.read()
        call = asyncio.create_task(master.send(("PING",), decode_raw, is_tracked=False))
        await settled_time.let_pass(TRUSTED_SECONDS - HEARTBEAT_SECONDS / 2)
        scripted.waits_for = lambda _: never
        slow.set()
        await settled_time.let_pass(asked + MAX_SILENCE_SECONDS - UNREAD_REPLY_SECONDS - settled_time.read())
        assert not call.done()
        await settled_time.let_pass(UNREAD_REPLY_SECONDS)

        assert call.done()
        with pytest.raises(ConnectionLost, match="no response within 1 s"):
            await call


@pytest.mark.clause("decided-redis-away")
async def test_silent_server_leaves_no_error_of_asyncio(
    settled_time: SettledTime, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_redis() as scripted, link_to(scripted) as master:
        never = asyncio.Event()
        scripted.waits_for = lambda _: never
        await settled_time.let_pass_until(lambda: not master.is_up, 2 * MAX_SILENCE_SECONDS)
    gc.collect()

    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.clause("decided-redis-away")
@pytest.mark.parametrize(
    ("hello", "last_words", "pauses"),
    [
        (b"-LOADING not yet\r\n", None, [FIRST_PAUSE_SECONDS * 2**failures for failures in range(4)]),
        (b"%1\r\n+role\r\n+master\r\n", b"", [STABLE_SECONDS] * 4),
    ],
    ids=["before its first answer", "after the first beat"],
)
async def test_a_server_that_ends_every_connection_sees_few(
    settled_time: SettledTime,
    monkeypatch: pytest.MonkeyPatch,
    hello: bytes,
    last_words: bytes | None,
    pauses: list[float],
) -> None:
    """Chance makes each pause as long as it may be here; the bounds are those of `Backoff`."""
    monkeypatch.setattr(random, "uniform", lambda _, most: most)
    async with scripted_redis() as scripted:
        scripted.hello, scripted.last_words = hello, last_words
        master = make_link(scripted)
        for accepted, pause in enumerate(pauses, 1):
            await until(lambda: not scripted.connected)
            await settled_time.let_pass(pause - 0.001)
            assert scripted.accepted == accepted
            await settled_time.let_pass(0.001)
        await until(lambda: scripted.accepted == len(pauses) + 1)
        await master.close()


@pytest.mark.clause("decided-redis-sentinel")
async def test_master_named_by_sentinels_ends_the_pause(
    settled_time: SettledTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`disconnect` is called if the Sentinels report a different master. The pause could last two seconds more."""
    monkeypatch.setattr(random, "uniform", lambda _, most: most)
    async with scripted_redis() as scripted:
        scripted.hello = b"-LOADING not yet\r\n"
        master = make_link(scripted)
        await settled_time.settle()
        assert scripted.accepted == 1

        master.disconnect("the Sentinels report a different master")

        await settled_time.settle()
        assert scripted.accepted == 2
        await master.close()
