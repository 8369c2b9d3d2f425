"""Lookups while Redis is killed, frozen, cut off or refuses us: memory is never believed longer than the bound says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from service.app import Parts
from service.gateway import BearerLookup, StoreUnavailable
from service.protocol.user import identify_user
from service.store.deadline import DEADLINE_SECONDS, charge, start_budget
from service.store.links import TRUSTED_SECONDS
from service.tokens import make_access_token
from tests.cast import access_key_of
from tests.fair_clock import read_fair_clock
from tests.faults.proxy import running_proxy
from tests.faults.stage import Stage, parts_on, start_sessions
from tests.servers import stop
from tests.waiting import until

CAROL = identify_user("main", "carol@example.com")
LATEST_SECONDS = 2.0
BACK_SECONDS = 2.5
OF_A_TURN_SECONDS = 0.2
"""What the work of a turn of the event loop may take until the test looks at the clock."""


@pytest.fixture(scope="module")
def built_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("lookups"))
    with running_proxy(stage.redis.port) as proxy:
        stage.proxy = proxy
        yield stage
    stage.store.close()
    stop(stage.redis.process)


@pytest.fixture
def stage(built_stage: Stage) -> Stage:
    built_stage.proxy.heal()
    built_stage.store.flushall()
    return built_stage


@pytest.fixture
async def parts(stage: Stage) -> AsyncIterator[Parts]:
    async with parts_on(stage) as parts:
        yield parts


@pytest.fixture
async def tokens(parts: Parts) -> list[str]:
    return [access_token for access_token, _ in await start_sessions(parts, CAROL.username, 5)]


@pytest.fixture
async def direct(stage: Stage) -> AsyncIterator[BearerLookup]:
    bearer = BearerLookup(stage.redis.url)
    yield bearer
    await bearer.close()


@pytest.fixture
async def beyond(stage: Stage) -> AsyncIterator[BearerLookup]:
    """Through a network that can be cut."""
    bearer = BearerLookup(stage.proxy.url)
    yield bearer
    await bearer.close()


async def remember(bearer: BearerLookup, tokens: list[str]) -> None:
    """A token is remembered from its second use on."""
    assert all([await bearer.lookup(token) for token in tokens * 2])


async def last_live_answer(bearer: BearerLookup, token: str) -> float:
    """When the last question was asked that memory answered; the next is an error, within the time limit."""
    last_live = 0.0
    while True:
        asked, asked_fairly = time.monotonic(), read_fair_clock()
        try:
            assert await bearer.lookup(token) is not None, "this lookup cannot know that"
        except StoreUnavailable:
            assert read_fair_clock() - asked_fairly < LATEST_SECONDS
            return last_live
        last_live = asked
        await asyncio.sleep(0.01)


async def comes_back(bearer: BearerLookup, token: str) -> float:
    """After how many seconds it is live again; meanwhile there are errors only."""
    started = read_fair_clock()
    while True:
        try:
            assert await bearer.lookup(token) is not None
        except StoreUnavailable:
            await asyncio.sleep(0.01)
            assert read_fair_clock() - started < 10
        else:
            return read_fair_clock() - started


@pytest.mark.clause("decided-gateway-stops-trusting", "decided-memory-follows-redis")
async def test_a_lost_stream_empties_memory_and_lookups_go_on(
    stage: Stage, direct: BearerLookup, tokens: list[str]
) -> None:
    await remember(direct, tokens)
    reads = stage.count_calls("get")
    (ours,) = [client for client in stage.store.client_list() if client["name"] == "token-lookups"]

    stage.store.client_kill_filter(_id=ours["id"])
    await until(lambda: ours["id"] not in [client["id"] for client in stage.store.client_list()])
    for _ in range(3):
        await asyncio.sleep(0)  # what happened is heard of
    await remember(direct, tokens)

    assert stage.count_calls("get") == reads + len(tokens)


@pytest.mark.clause("decided-i8-fail-closed", "decided-redis-away")
async def test_without_redis_lookups_are_errors_at_once_and_work_again_by_themselves(
    stage: Stage, direct: BearerLookup, tokens: list[str]
) -> None:
    await remember(direct, tokens)
    with stage.killed():
        await last_live_answer(direct, tokens[0])
        started = read_fair_clock()
        for _ in range(100):
            with pytest.raises(StoreUnavailable, match="ConnectionRefusedError"):
                await direct.lookup(tokens[0])

        assert read_fair_clock() - started < LATEST_SECONDS

    assert await comes_back(direct, tokens[0]) < BACK_SECONDS
    await remember(direct, tokens)


@pytest.mark.clause("decided-i8-fail-closed", "decided-redis-away")
async def test_a_lookup_may_be_made_before_its_redis(stage: Stage, tokens: list[str]) -> None:
    bearer = BearerLookup(stage.redis.url)
    with pytest.raises(StoreUnavailable, match="not been asked"):
        bearer.now_ms()
    with stage.killed():
        with pytest.raises(StoreUnavailable):
            await bearer.lookup(tokens[0])
        with pytest.raises(StoreUnavailable, match="has not told the time"):
            bearer.now_ms()

    assert await comes_back(bearer, tokens[0]) < BACK_SECONDS
    await bearer.close()


@pytest.mark.clause("decided-gateway-stops-trusting", "decided-i8-fail-closed", "decided-redis-away")
async def test_a_frozen_redis_is_believed_for_a_second_and_then_an_error(
    stage: Stage, direct: BearerLookup, tokens: list[str]
) -> None:
    await remember(direct, tokens)
    with stage.frozen():
        frozen = time.monotonic()
        last_live = await last_live_answer(direct, tokens[0])

        assert 0 < last_live - frozen < TRUSTED_SECONDS
        for token in tokens:
            asked = read_fair_clock()
            with pytest.raises(StoreUnavailable):
                await direct.lookup(token)
            assert read_fair_clock() - asked < LATEST_SECONDS

    assert await comes_back(direct, tokens[0]) < LATEST_SECONDS


@pytest.mark.clause("decided-i8-fail-closed", "decided-redis-away")
async def test_a_request_that_used_most_of_its_time_does_not_wait_for_a_frozen_redis_to_be_given_up(
    stage: Stage, direct: BearerLookup, tokens: list[str]
) -> None:
    left_seconds = 0.3

    async def request() -> float:
        start_budget()
        charge(time.monotonic() - DEADLINE_SECONDS + left_seconds)
        asked = read_fair_clock()
        with pytest.raises(StoreUnavailable):
            await direct.lookup(make_access_token("0a3").text)
        return read_fair_clock() - asked

    await remember(direct, tokens)
    with stage.frozen():
        assert await asyncio.create_task(request()) < left_seconds + OF_A_TURN_SECONDS


@pytest.mark.clause("decided-gateway-stops-trusting", "decided-i8-fail-closed")
async def test_what_is_revoked_beyond_a_cut_network_is_live_for_a_second_at_most(
    stage: Stage, beyond: BearerLookup, parts: Parts, tokens: list[str]
) -> None:
    await remember(beyond, tokens)
    with stage.cut_off():
        await parts.revocations.revoke_all(CAROL.shard, CAROL.subject)
        revoked = time.monotonic()
        last_live = await last_live_answer(beyond, tokens[0])

        assert last_live - revoked < TRUSTED_SECONDS

    async with asyncio.timeout(10):
        while True:
            try:
                assert await beyond.lookup(tokens[0]) is None
            except StoreUnavailable:
                await asyncio.sleep(0.01)
            else:
                break


@pytest.mark.clause("decided-gateway-stops-trusting")
async def test_after_the_event_loop_stood_still_redis_is_asked(
    stage: Stage, direct: BearerLookup, tokens: list[str]
) -> None:
    """News and lost beats lie unread in the socket; what counts is the clock."""
    await remember(direct, tokens)
    await asyncio.sleep(0)
    for token in tokens:
        stage.store.delete(access_key_of(token))
    time.sleep(TRUSTED_SECONDS)  # noqa: ASYNC251 - that is the point

    assert [await direct.lookup(token) for token in tokens] == [None] * len(tokens)


@pytest.mark.clause("decided-gateway-stops-trusting", "decided-i8-fail-closed")
@pytest.mark.parametrize("rights", [[], ["+client|tracking"]], ids=["no tracking", "no caching"])
async def test_a_user_who_may_not_track_is_served_without_memory_and_the_log_says_so(
    stage: Stage, tokens: list[str], rights: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    commands = ["+get", "+time", *rights]
    stage.store.acl_setuser("reader", enabled=True, passwords=["+word"], keys=["*"], commands=commands, reset=True)
    reads = stage.count_calls("get")

    async with BearerLookup(stage.redis.url.replace("//", "//reader:word@")) as bearer:
        for _ in range(3):
            assert await bearer.lookup(tokens[0]) is not None

        assert stage.count_calls("get") == reads + 3
        stage.store.delete(access_key_of(tokens[0]))
        assert await bearer.lookup(tokens[0]) is None
    (told,) = [record.getMessage() for record in caplog.records if "CLIENT TRACKING" in record.getMessage()]
    assert "nothing is remembered for lookups" in told
    assert "NOPERM" in told


@pytest.mark.clause("decided-gateway-stops-trusting", "decided-i8-fail-closed")
async def test_a_user_who_loses_the_right_to_track_is_served_without_memory(stage: Stage, tokens: list[str]) -> None:
    """The rights of connections that are up change with the user's."""
    commands = ["+get", "+time", "+client|tracking", "+client|caching"]
    stage.store.acl_setuser("reader", enabled=True, passwords=["+word"], keys=["*"], commands=commands, reset=True)
    async with BearerLookup(stage.redis.url.replace("//", "//reader:word@")) as bearer:
        await remember(bearer, tokens[:1])
        stage.store.execute_command("ACL", "SETUSER", "reader", "-client|caching")  # type: ignore[no-untyped-call]

        await remember(bearer, tokens[1:2])
        stage.store.delete(*(access_key_of(token) for token in tokens[:2]))

        assert [await bearer.lookup(token) for token in tokens[:2]] == [None, None]


@pytest.mark.clause("decided-i8-fail-closed", "decided-redis-away")
async def test_many_lookups_under_way_when_redis_dies_are_errors_and_none_is_lost(
    stage: Stage, beyond: BearerLookup, tokens: list[str]
) -> None:
    await remember(beyond, tokens)
    with stage.cut_off():
        under_way = [asyncio.create_task(beyond.lookup(make_access_token("0a3").text)) for _ in range(500)]
        await asyncio.sleep(0)
        asked = read_fair_clock()
        answers = await asyncio.gather(*under_way, return_exceptions=True)

        assert read_fair_clock() - asked < LATEST_SECONDS + OF_A_TURN_SECONDS
    assert {type(answer) for answer in answers} == {StoreUnavailable}


@pytest.mark.clause("decided-verify-asks-redis-once", "decided-i8-fail-closed")
async def test_a_redis_that_refuses_to_read_is_asked_once_for_each_lookup(stage: Stage, tokens: list[str]) -> None:
    stage.store.acl_setuser(
        "blind", enabled=True, passwords=["+word"], keys=["family:*"], commands=["+@all"], reset=True
    )
    bearer = BearerLookup(stage.redis.url.replace("//", "//blind:word@"))
    with pytest.raises(StoreUnavailable, match="permissions"):
        await bearer.lookup(tokens[0])
    refused = rejected_reads(stage)

    for _ in range(10):
        with pytest.raises(StoreUnavailable, match="permissions"):
            await bearer.lookup(tokens[0])

    assert rejected_reads(stage) == refused + 10
    await bearer.close()


def rejected_reads(stage: Stage) -> int:
    statistics: dict[str, dict[str, int]] = stage.store.info("commandstats")
    return statistics["cmdstat_get"]["rejected_calls"]
