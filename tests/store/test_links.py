"""A link to a server whose clock does what no clock should do, that is slow, dies at once, or cannot serve."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

import pytest

from service.store import links
from service.store.backoff import STABLE_SECONDS
from service.store.links import (
    BEAT_SECONDS,
    DRIFT_SECONDS,
    LONGEST_SILENCE_SECONDS,
    NO_CHECK,
    TRUSTED_SECONDS,
    Check,
    Link,
    Purpose,
    TooManyPending,
    read_clock,
)
from service.store.redis_url import Node
from service.store.wire import Wire, WireLost, as_it_came
from tests.fair_clock import read_fair_clock
from tests.store.scripted_redis import ScriptedRedis, scripted_redis
from tests.waiting import until


class Memory:
    """What a link tells to forget."""

    def __init__(self) -> None:
        self.told: list[Sequence[bytes] | None] = []

    def forget(self, keys: Sequence[bytes] | None) -> None:
        self.told.append(keys)

    def forget_slots(self, slots: Collection[int]) -> None:
        raise AssertionError("a link knows no slots")


async def find_node(scripted: ScriptedRedis) -> Node:
    return scripted.url.nodes[0]


def make_link(scripted: ScriptedRedis, memory: Memory | None = None, check: Check = NO_CHECK) -> Link:
    return Link(Purpose(scripted.url, "lookups", memory or Memory()), lambda: find_node(scripted), check)


@asynccontextmanager
async def link_to(scripted: ScriptedRedis, memory: Memory | None = None) -> AsyncIterator[Link]:
    link = make_link(scripted, memory)
    await until(lambda: link.is_up)
    try:
        yield link
    finally:
        await link.close()


@pytest.mark.clause("decided-i9-one-clock")
async def test_deadlines_are_those_of_redis_however_wrong_our_clock_is() -> None:
    async with scripted_redis() as scripted:
        scripted.clock = lambda: time.time() + 86_400
        async with link_to(scripted) as link:
            now_ms = (time.time() + 86_400) * 1000

            assert abs(link.deadline(now_ms + 60_000) - (time.monotonic() + 60)) < 0.2
            assert link.deadline(now_ms + 60_000) < time.monotonic() + 60
            assert abs((link.now_ms() or 0) - now_ms) < 200


@pytest.mark.clause("decided-i9-one-clock", "decided-memory-follows-redis")
async def test_when_the_clock_of_redis_leaps_ahead_nothing_from_before_is_believed() -> None:
    """The deadlines from before would come too late."""
    async with scripted_redis() as scripted, link_to(scripted) as link:
        trust = link.trust
        scripted.clock = lambda: time.time() + 10
        await until(lambda: link.trust is not trust)
        later = link.trust

        assert abs((link.now_ms() or 0) - (time.time() + 10) * 1000) < 200
        await until(lambda: later.until > read_clock() + TRUSTED_SECONDS - BEAT_SECONDS)
        assert trust.until == 0
        assert link.trust is later


@pytest.mark.clause("decided-i9-one-clock")
async def test_when_the_clock_of_redis_falls_back_only_new_deadlines_follow() -> None:
    """What is remembered ends early then, and Redis is asked."""
    async with scripted_redis() as scripted, link_to(scripted) as link:
        trust = link.trust
        scripted.clock = lambda: time.time() - 10
        await until(lambda: (link.now_ms() or 0) < (time.time() - 9) * 1000)

        assert link.trust is trust


@pytest.mark.clause("decided-i9-one-clock")
async def test_a_clock_that_trembles_moves_nothing() -> None:
    async with scripted_redis() as scripted, link_to(scripted) as link:
        trust, lead = link.trust, link.deadline(0)
        trusted = trust.until
        scripted.clock = lambda: time.time() + DRIFT_SECONDS / 2
        await until(lambda: link.trust.until > trusted + BEAT_SECONDS)

        assert link.trust is trust
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
    async with link_to(scripted) as link:
        server.close()
        lost_at = time.monotonic()
        scripted.hang_up()
        await until(lambda: "no connection" in caplog.text)
        told = len(caplog.records)
        await until(lambda: not link.is_up)
        server = await asyncio.start_server(scripted.serve, "127.0.0.1", scripted.port)
        try:
            await until(lambda: link.is_up)
        finally:
            server.close()
        lasted = time.monotonic() - lost_at

        to = f"for lookups to 127.0.0.1:{scripted.port}"
        assert told == 3
        for record, (level, message) in zip(
            caplog.records,
            [
                ("INFO", f"connected {to}"),
                ("WARNING", f"the connection {to} ended: the server closed the connection"),
                ("WARNING", f"no connection {to}: ConnectionRefusedError"),
                ("WARNING", f"connected {to} again, after "),
            ],
            strict=True,
        ):
            assert record.levelname == level
            assert record.getMessage().startswith(message)
        seconds = caplog.messages[-1].removeprefix(f"connected {to} again, after ").removesuffix(" s")
        assert 0 <= float(seconds) <= lasted + 0.05


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
        async with link_to(scripted) as link:
            first = link.trust.until
            await until(lambda: link.trust.until > first)

            assert first - TRUSTED_SECONDS <= arrived[0]
            assert link.trust.until - TRUSTED_SECONDS <= arrived[1]


@pytest.mark.clause("decided-redis-away")
async def test_a_call_does_not_wait_for_a_slow_beat_and_for_one_that_is_never_answered() -> None:
    async with scripted_redis() as scripted, link_to(scripted) as link:
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
    async with scripted_redis() as scripted:
        answered = asyncio.Event()
        scripted.answer = lambda _: b"_\r\n"
        scripted.delay = lambda command: 0 if command[0] != b"GET" or answered.is_set() else 0.2
        check = Check(lambda: ("GET", "probe"), judge_probe)
        link = make_link(scripted, check=check)
        await until(lambda: scripted.count("GET") == 1)
        assert (link.is_up, link.trust.until) == (False, 0)

        answered.set()
        await until(lambda: link.is_up)
        trust = link.trust
        first = trust.until
        assert first > read_clock()
        await until(lambda: trust.until > first)

        scripted.answer = lambda _: b"-MASTERDOWN no master\r\n"
        await until(lambda: not link.is_up)
        assert (trust.until, link.trust.until) == (0, 0)
        await link.close()


def judge_probe(answer: object) -> None:
    if isinstance(answer, BaseException):
        raise answer


@pytest.mark.clause("decided-gateway-stops-trusting")
async def test_a_wire_that_dies_in_one_piece_with_the_answer_to_its_beat_is_never_used() -> None:
    async with scripted_redis() as scripted:
        scripted.last_words = b"!?"
        link = make_link(scripted)
        while scripted.accepted < 2:
            assert not link.is_up
            assert link.trust.until == 0
            await asyncio.sleep(0)

        scripted.last_words = None
        await until(lambda: link.is_up)
        scripted.last_words = b"!?"
        await until(lambda: not link.is_up)
        accepted = scripted.accepted
        while scripted.accepted == accepted:
            assert not link.is_up
            assert link.trust.until == 0
            await asyncio.sleep(0)
        await link.close()


@pytest.mark.clause("decided-redis-away")
@pytest.mark.parametrize(
    ("hello", "last_words", "most"),
    [(b"-LOADING not yet\r\n", None, 10), (b"%1\r\n+role\r\n+master\r\n", b"", 10)],
    ids=["before its first answer", "after the first beat"],
)
async def test_a_server_that_ends_every_connection_sees_few(hello: bytes, last_words: bytes | None, most: int) -> None:
    async with scripted_redis() as scripted:
        scripted.hello, scripted.last_words = hello, last_words
        link = make_link(scripted)
        await asyncio.sleep(0.6)  # the time span is the point
        await link.close()

        assert 1 <= scripted.accepted <= most


@pytest.mark.clause("decided-redis-away")
async def test_after_a_connection_that_lasted_there_is_no_pause() -> None:
    async with scripted_redis() as scripted, link_to(scripted) as link:
        connected_at = time.monotonic()
        await until(lambda: time.monotonic() > connected_at + STABLE_SECONDS + 0.1)
        assert scripted.accepted == 1

        left_at = read_fair_clock()
        scripted.hang_up()
        await until(lambda: scripted.accepted == 2 and link.is_up)

        assert read_fair_clock() - left_at < BEAT_SECONDS


async def test_a_closed_link_says_so_to_who_asks_and_to_who_waited() -> None:
    async with scripted_redis() as scripted:
        scripted.delay = lambda command: 10 if command[0] == b"HELLO" else 0
        link = make_link(scripted)
        waiting = asyncio.create_task(link.send(("GET", "key"), as_it_came, is_tracked=True))
        await until(lambda: scripted.count("HELLO") == 1)

        await link.close("this node is gone")

        with pytest.raises(WireLost, match="this node is gone"):
            await waiting
        with pytest.raises(WireLost, match="this node is gone"):
            await link.send(("GET", "key"), as_it_came, is_tracked=True)


@pytest.mark.clause("decided-redis-away")
async def test_too_many_requests_at_once_are_refused_and_the_connection_lives_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "MAX_PENDING", 20)
    async with scripted_redis() as scripted, link_to(scripted) as link:
        scripted.delay = lambda command: 0.4 if command[0] == b"GET" else 0
        first = link.send_now(("GET", "first"), as_it_came, is_tracked=False)
        await until(lambda: scripted.count("GET") == 1)
        scripted.delay = lambda _: 0
        asked = [link.send_now(("GET", "key"), as_it_came, is_tracked=False) for _ in range(40)]
        answers = await asyncio.gather(first, *asked, return_exceptions=True)

        refused = [answer for answer in answers if isinstance(answer, TooManyPending)]
        assert 20 <= len(refused) <= 22  # a beat or two may be among those that are sent
        assert set(answers) - set(refused) == {None}
        assert await link.send(("GET", "key"), as_it_came, is_tracked=False) is None
        assert scripted.accepted == 1


@pytest.mark.clause("decided-redis-away")
async def test_a_mistake_of_ours_does_not_end_a_link_for_good(caplog: pytest.LogCaptureFixture) -> None:
    class MistakenLink(Link):
        mistakes = 2

        async def _use(self, wire: Wire) -> str:
            if self.mistakes:
                self.mistakes -= 1
                raise ZeroDivisionError
            return await super()._use(wire)

    async with scripted_redis() as scripted:
        link = MistakenLink(Purpose(scripted.url, "lookups", Memory()), lambda: find_node(scripted))
        await until(lambda: link.is_up)

        assert await link.send(("GET", "key"), as_it_came, is_tracked=True) is None
        await link.close()
    told = [record for record in caplog.records if "ended by a mistake" in record.getMessage()]
    assert [record.exc_info is not None for record in told] == [True, True]


@pytest.mark.clause("decided-redis-away")
async def test_the_late_end_of_another_connection_takes_nothing_from_the_one_in_use() -> None:
    async with scripted_redis() as scripted, link_to(scripted) as link:
        wire = await link.find_wire()
        link._take_loss()

        assert await link.find_wire() is wire
