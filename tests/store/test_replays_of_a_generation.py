"""Replays of one generation: counted, each with an access token that replaces no token of the honest client."""

from typing import Any

import pytest
import redis

from service.store.families import Spent
from tests.conftest import Clock
from tests.store.sessions import Session, Sessions
from tests.support.servers import ALLOCATOR_BYTES

GENERATIONS_MERGED = 80
"""The number of generations that one slice of the grace merges, so that they share a time in the record."""


async def replay(sessions: Sessions, session: Session, *generations: int) -> list[int]:
    """Return how often each was replayed by then, as the store counts it."""
    outcomes = [await sessions.spend(session, generation) for generation in generations]
    assert {outcome.verdict for outcome in outcomes} == {"repeated"}
    return [outcome.replays for outcome in outcomes if isinstance(outcome, Spent)]


def count_commands(store: redis.Redis) -> int:
    """Return how many commands Redis has run, scripts' included, without those of the heartbeats."""
    stats: Any = store.info("commandstats")
    return sum(int(each["calls"]) for name, each in stats.items() if name not in ("cmdstat_time", "cmdstat_hello"))


@pytest.mark.clause("decided-replays-of-one-generation")
async def test_replays_are_counted_up_to_the_sixth(sessions: Sessions) -> None:
    session = await sessions.start()
    assert (await sessions.refresh(session)).replays == 0

    assert await replay(sessions, session, *[1] * 7) == [1, 2, 3, 4, 5, 6, 6]


@pytest.mark.clause("decided-replays-of-one-generation")
async def test_replays_keep_their_access_tokens_for_life(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    await sessions.refresh(session)
    await replay(sessions, session, *[1] * 60)
    clock.advance(550)

    assert sessions.live(session) == [True] * 62


@pytest.mark.clause("decided-replays-of-one-generation")
async def test_at_the_hundred_a_replay_deletes_the_oldest_token_of_a_replay(sessions: Sessions) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 2)
    for count in range(1, 120):
        await replay(sessions, session, 1 + count % 2)
        given = sessions.live(session)[3:]

        assert sessions.live(session)[:3] == [True, True, True]
        assert given == [False] * max(0, count - 97) + [True] * min(count, 97)


@pytest.mark.clause("decided-i3-constant-memory")
@pytest.mark.single_server("the commands of one server are counted")
async def test_a_late_replay_runs_as_many_commands_as_an_early_one(sessions: Sessions, store: redis.Redis) -> None:
    session = await sessions.start()
    await sessions.refresh(session)
    counts, weights = [], []
    for _ in range(130):
        before = count_commands(store)
        await replay(sessions, session, 1)
        counts.append(count_commands(store) - before)
        weights.append(store.memory_usage(session.key, samples=0) or 0)

    assert set(counts[1:98]) == {counts[0]}
    # At the bound the script also counts the live tokens, and deletes one with its field.
    assert set(counts[98:]) == {counts[0] + 3}
    # 32 replays that left anything would exceed this.
    assert max(weights[98:]) - min(weights[98:]) <= ALLOCATOR_BYTES


@pytest.mark.clause("decided-replays-of-one-generation")
async def test_alternating_generations_are_counted_apart(sessions: Sessions) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 2)
    counts = await replay(sessions, session, *[1, 2] * 6)

    assert counts == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    assert sessions.live(session) == [True] * 15


@pytest.mark.clause("decided-replays-of-one-generation")
async def test_replays_count_after_their_access_tokens_have_expired(sessions: Sessions, clock: Clock) -> None:
    sessions.set_lifetimes(access_token_ms=10_000)
    session = await sessions.start()
    await sessions.refresh(session)
    counts = []
    for _ in range(6):
        counts += await replay(sessions, session, 1)
        clock.advance(11)

    assert counts == [1, 2, 3, 4, 5, 6]
    assert not any(sessions.live(session))


@pytest.mark.clause("decided-replays-of-one-generation")
async def test_replays_count_after_an_honest_refresh(sessions: Sessions) -> None:
    session = await sessions.start()
    await sessions.refresh(session)
    await replay(sessions, session, 1, 1, 1)
    await sessions.refresh(session, 3)

    assert await replay(sessions, session, 1, 1, 2) == [4, 5, 1]


@pytest.mark.clause("decided-replays-of-one-generation", "decided-access-tokens-per-family")
async def test_at_the_hundred_a_replay_deletes_no_honest_token(sessions: Sessions) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 99)
    await replay(sessions, session, 98)
    assert sessions.live(session) == [True] * 101
    await replay(sessions, session, 99)

    assert sessions.live(session) == [True] * 100 + [False, True]


@pytest.mark.clause("decided-replays-of-one-generation", "decided-access-tokens-per-family")
async def test_alternating_generations_at_the_hundred_are_still_counted(sessions: Sessions, clock: Clock) -> None:
    """Each replay at the bound deletes the token of the one before it.

    The two generations are spent a second apart. The record may merge spends that are closer, and would count their
    replays together.
    """
    session = await sessions.start()
    await sessions.refresh(session, 97)
    for _ in range(2):
        clock.advance(1)
        await sessions.refresh(session)

    assert await replay(sessions, session, *[98, 99] * 5) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert sessions.live(session) == [True] * 100 + [False] * 9 + [True]


@pytest.mark.clause("decided-access-tokens-per-family")
async def test_an_honest_refresh_past_the_hundred_deletes_what_replays_gave_before_the_oldest(
    sessions: Sessions,
) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 95)
    await replay(sessions, session, 90, 91, 92, 93)
    await sessions.refresh(session, 4)

    assert sessions.live(session) == [True] * 96 + [False] * 4 + [True] * 4
    await sessions.refresh(session)
    assert sessions.live(session) == [False] + [True] * 95 + [False] * 4 + [True] * 5


@pytest.mark.clause("decided-replays-of-one-generation", "decided-spent-times-kept-coarser")
async def test_no_replay_is_forgotten_where_times_are_merged(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 3)
    await replay(sessions, session, 1, 1, 1, 2, 3, 3)
    for _ in range(GENERATIONS_MERGED):
        clock.offset_ms += 1
        await sessions.refresh(session)

    assert await replay(sessions, session, 1, 1) == [4, 5]


@pytest.mark.clause("decided-replays-of-one-generation", "decided-i7-revocation-is-final")
async def test_what_replays_gave_ends_with_the_family(sessions: Sessions) -> None:
    session = await sessions.start()
    await sessions.refresh(session)
    await replay(sessions, session, *[1] * 6)
    shard, digest = session.identity.shard, session.first.family_digest
    await sessions.families.end(shard, digest, client_id="phone-app", reason="revoked")

    assert not any(sessions.live(session))
