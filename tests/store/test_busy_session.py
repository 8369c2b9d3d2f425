"""A session that is refreshed all the time: each refresh costs Redis what the first did, and no spend is forgotten."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from service.store.families import Spent
from tests.conftest import Clock
from tests.store.sessions import Session, Sessions
from tests.support.redis_monitor import ONE_SERVER, recording_commands

REFRESHES = 400
READS = ("GET", "HGETALL", "HMGET")
MAX_FIELD_LENGTH = 64
"""The limit in characters up to which Redis keeps the hash in its compact form."""


async def refresh_steadily(sessions: Sessions, session: Session, clock: Clock, times: int, seconds: float) -> None:
    """Refresh so many times with only the scripts' clock moved, so that nothing expires."""
    for _ in range(times):
        clock.offset_ms += round(1000 * seconds / times)
        await sessions.refresh(session)


@pytest.mark.clause("decided-spent-times-kept-coarser", "decided-grace-from-first-use", "decided-i2-one-head")
async def test_every_generation_of_a_busy_session_is_answered_with_the_head(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    await refresh_steadily(sessions, session, clock, REFRESHES, 200)

    for generation in range(1, REFRESHES + 1):
        outcome = await sessions.spend(session, generation)
        assert isinstance(outcome, Spent), generation
        assert (outcome.verdict, outcome.head) == ("repeated", REFRESHES + 1)


@pytest.mark.clause("decided-i3-constant-memory")
@pytest.mark.single_server("the commands of one server are counted")
async def test_the_four_hundredth_refresh_runs_one_command_more(
    sessions: Sessions, clock: Clock, store: redis.Redis
) -> None:
    def count_commands() -> int:
        """Return the number of commands without those of heartbeats."""
        stats = info(store, "commandstats").items()
        return sum(int(each["calls"]) for name, each in stats if name not in ("cmdstat_time", "cmdstat_hello"))

    async def count_of_refresh() -> int:
        head = sessions.parsed(session).head
        before = count_commands()
        await sessions.spend(session, head)
        return count_commands() - before

    session = await sessions.start()
    first = await count_of_refresh()
    await refresh_steadily(sessions, session, clock, REFRESHES, 200)

    assert await count_of_refresh() == first + 1


@pytest.mark.clause("decided-i3-constant-memory")
@ONE_SERVER
async def test_a_refresh_of_a_busy_session_reads_as_little_as_the_first(
    sessions: Sessions, clock: Clock, store: redis.Redis
) -> None:
    """The refresh reads as many fields, and none of them is longer than a field of a new session may be."""

    async def list_reads() -> list[str]:
        head = sessions.parsed(session).head
        with recording_commands(store) as commands:
            await sessions.spend(session, head)
        return [f"{words[0]} {len(words)}" for command in commands if (words := command.split())[0] in READS]

    session = await sessions.start()
    first = await list_reads()
    await refresh_steadily(sessions, session, clock, REFRESHES, 200)

    assert first == await list_reads() != []
    assert max(map(len, store.hvals(session.key))) <= MAX_FIELD_LENGTH


async def test_a_family_holds_one_entry_for_each_slice_of_time(sessions: Sessions, clock: Clock) -> None:
    """Entries are merged for generations before the last hundred.

    They were spent within 150 seconds; a slice has 4.7.
    """
    session = await sessions.start()
    await refresh_steadily(sessions, session, clock, REFRESHES, 200)

    assert 32 <= len(sessions.parsed(session).spent) <= 34


@pytest.mark.clause("decided-i10-outage-is-not-theft", "decided-generation-ahead-of-redis")
async def test_a_busy_session_of_which_redis_lost_a_hundred_spends_goes_on(sessions: Sessions, clock: Clock) -> None:
    """The slots of the lost spends hold older ones, which must not be taken for them."""
    session = await sessions.start()
    await refresh_steadily(sessions, session, clock, 250, 100)
    sessions.store.copy(session.key, f"kept:{session.key}")
    await refresh_steadily(sessions, session, clock, 130, 52)
    sessions.store.copy(f"kept:{session.key}", session.key, replace=True)
    recovered = await sessions.spend(session, 380)
    await refresh_steadily(sessions, session, clock, 50, 20)

    assert recovered.verdict == "recovered"
    for generation in range(1, 431):
        outcome = await sessions.spend(session, generation)
        assert isinstance(outcome, Spent), generation
        assert (outcome.verdict, outcome.head) == ("repeated", 431)


async def test_the_six_generations_replayed_last_are_counted(sessions: Sessions) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 100)
    for generation in range(1, 101):
        await sessions.spend(session, generation)
    again = [await sessions.spend(session, generation) for generation in (100, 96, 1)]

    assert [outcome.replays for outcome in again if isinstance(outcome, Spent)] == [2, 2, 1]
    assert len(sessions.parsed(session).replays.split()) == 6


def info(store: redis.Redis, section: str) -> dict[str, Any]:
    found: Any = store.info(section)
    return dict(found)


@pytest.mark.clause("decided-spent-times-kept-coarser", "decided-grace-from-first-use")
@pytest.mark.parametrize(
    "later_graces", [[299_000], [200_000], [299_000, 300_000]], ids=["shorter", "short", "by turns"]
)
async def test_a_grace_that_is_changed_forgets_no_spend_within_both(
    sessions: Sessions, clock: Clock, later_graces: list[int]
) -> None:
    """Workers with the old and the new setting refresh in turns."""
    session = await sessions.start()
    await refresh_steadily(sessions, session, clock, 450, 180)
    for number in range(100):
        sessions.set_lifetimes(refresh_grace_ms=later_graces[number % len(later_graces)])
        await refresh_steadily(sessions, session, clock, 1, 0.4)
    sessions.set_lifetimes(refresh_grace_ms=min(later_graces))

    assert sessions.parsed(session).head == 551
    # Generation n was spent 0.4 * (550 - n) seconds ago.
    oldest = 550 - int(0.95 * min(later_graces) / 400)
    for generation in range(max(1, oldest), 551, 5):
        outcome = await sessions.spend(session, generation)
        assert isinstance(outcome, Spent), generation
        assert (outcome.verdict, outcome.head) == ("repeated", 551)


@pytest.mark.clause("decided-i10-outage-is-not-theft", "decided-generation-ahead-of-redis")
async def test_a_recovery_by_a_clock_that_is_behind_is_dated_no_earlier_than_the_spends_before(
    sessions: Sessions, clock: Clock
) -> None:
    session = await sessions.start()
    await refresh_steadily(sessions, session, clock, 300, 60)
    latest_ms = sessions.parsed(session).used_ms
    clock.offset_ms -= 5_000
    recovered = await sessions.spend(session, 310)
    assert recovered.verdict == "recovered"
    assert sessions.parsed(session).used_ms >= latest_ms
    await refresh_steadily(sessions, session, clock, 150, 30)

    for generation in range(1, 461, 3):
        outcome = await sessions.spend(session, generation)
        assert isinstance(outcome, Spent), generation
        assert (outcome.verdict, outcome.head) == ("repeated", 461)


@pytest.mark.clause("decided-access-tokens-per-family")
async def test_replays_keep_to_the_bound_of_access_tokens_after_a_change_of_their_life(
    sessions: Sessions, clock: Clock
) -> None:
    sessions.set_lifetimes(access_token_ms=36_000_000)
    session = await sessions.start()
    await sessions.refresh(session, 120)
    sessions.set_lifetimes(access_token_ms=60_000)
    clock.offset_ms += 61_000
    for generation in range(60, 120):
        await sessions.spend(session, generation)

    assert sum(sessions.live(session)) <= 101


@pytest.mark.clause("decided-access-tokens-per-family", "decided-generation-ahead-of-redis")
async def test_replays_keep_to_the_bound_of_access_tokens_after_a_recovery(sessions: Sessions) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 99)
    assert (await sessions.spend(session, 150)).verdict == "recovered"
    await sessions.refresh(session, 49)
    for generation in range(120, 200):
        await sessions.spend(session, generation)

    assert sum(sessions.live(session)) <= 101


@pytest.mark.clause("decided-session-max-age")
async def test_a_replay_keeps_the_end_of_the_session_that_a_greatest_age_shortens_for_a_while(
    sessions: Sessions,
) -> None:
    session = await sessions.start()
    await sessions.refresh(session)
    expires_ms = sessions.parsed(session).expires_ms
    sessions.set_lifetimes(session_max_age_ms=60_000)
    assert (await sessions.spend(session, 1)).verdict == "repeated"

    assert sessions.parsed(session).expires_ms == expires_ms
