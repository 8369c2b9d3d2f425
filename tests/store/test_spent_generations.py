"""What the record keeps of spent generations and of replays: the grace of each, the bounds, and what is forgotten."""

import itertools
import random

import pytest
import redis

from service.store.sessions.families import Spent
from tests.conftest import Clock
from tests.store.sessions import Session, Sessions

pytestmark = pytest.mark.single_server("test_spend_refresh_token.py and test_revocations.py run the scripts elsewhere")

GRACE_MS = 300_000
SLICE_MS = 4_688
"""A 64th of the grace, rounded up."""
BUSY_REFRESHES = 700


async def refresh_steadily(sessions: Sessions, session: Session, clock: Clock, times: int, seconds: float) -> None:
    """Refresh so many times with only the scripts' clock moved, so that nothing expires."""
    for _ in range(times):
        clock.offset_ms += round(1000 * seconds / times)
        await sessions.refresh(session)


async def replay(sessions: Sessions, session: Session, *generations: int) -> list[tuple[int, int]]:
    """Return the streak and the number of replays that each replay has."""
    outcomes = [await sessions.spend(session, generation) for generation in generations]
    assert {outcome.verdict for outcome in outcomes} == {"repeated"}
    return [(outcome.streak, outcome.replays) for outcome in outcomes if isinstance(outcome, Spent)]


@pytest.mark.clause("decided-grace-end-exclusive", "spec-8-grace-five-minutes", "spec-4.2-refresh-grace")
@pytest.mark.parametrize(("late_ms", "verdict"), [(-1, "repeated"), (0, "replayed")])
async def test_the_grace_ends_to_the_millisecond(sessions: Sessions, late_ms: int, verdict: str) -> None:
    session = await sessions.start()
    await sessions.refresh(session)
    spent_ms = sessions.parsed(session).used_ms
    outcome = await sessions.run_at(spent_ms + GRACE_MS + late_ms, lambda: sessions.spend(session, 1))

    assert verdict == outcome.verdict


async def test_a_retry_leaves_the_time_of_the_last_refresh(sessions: Sessions, clock: Clock) -> None:
    """The access tokens of the refresh have expired, so the retry takes them from the record."""
    sessions.set_lifetimes(access_token_ms=60_000)
    session = await sessions.start()
    clock.advance(3_600)
    await sessions.refresh(session)
    before = sessions.parsed(session)
    clock.advance(100)
    await replay(sessions, session, 1)

    assert before.used_ms == sessions.parsed(session).used_ms > before.created_ms


@pytest.mark.clause("decided-spent-times-in-64ths", "decided-i2-one-head")
async def test_a_busy_session_accepts_a_retry_of_its_first_token(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    await refresh_steadily(sessions, session, clock, 150, 260)

    for generation in range(1, 151):
        outcome = await sessions.spend(session, generation)
        assert isinstance(outcome, Spent), generation
        assert (outcome.verdict, outcome.head) == ("repeated", 151)


@pytest.mark.clause("decided-spent-times-in-64ths", "decided-late-replay-ends-family")
@pytest.mark.parametrize("pace", ["steady", "random", "waves"])
async def test_busy_session_refuses_tokens_a_64th_late(sessions: Sessions, clock: Clock, pace: str) -> None:
    dice = random.Random(pace)
    pauses = {
        "steady": itertools.repeat(1.0),
        "random": (dice.expovariate(1.5) for _ in itertools.count()),
        "waves": itertools.cycle([0.05] * 70 + [4.0] * 30),
    }[pace]
    session = await sessions.start()
    spent_ms = {}
    for generation in range(1, BUSY_REFRESHES + 1):
        clock.offset_ms += round(1000 * next(pauses))
        await sessions.refresh(session)
        spent_ms[generation] = sessions.parsed(session).used_ms
    assert len(sessions.parsed(session).spent_times) <= 65
    kept = sessions.store.dump(session.key)
    at_ms = spent_ms[BUSY_REFRESHES]

    for generation in range(1, BUSY_REFRESHES + 1, 3):
        verdict = (await sessions.run_at(at_ms, lambda number=generation: sessions.spend(session, number))).verdict  # type: ignore[misc]
        if at_ms - spent_ms[generation] < GRACE_MS:
            assert verdict == "repeated", generation
        elif at_ms - spent_ms[generation] >= GRACE_MS + SLICE_MS:
            assert verdict == "replayed", generation
        sessions.store.restore(session.key, 10_000_000, kept, replace=True)  # type: ignore[arg-type]


@pytest.mark.clause("decided-spent-times-in-64ths", "decided-late-replay-ends-family")
async def test_a_forgotten_replay_takes_no_time_of_a_busy_session(sessions: Sessions, clock: Clock) -> None:
    """The token of an early replay is over while the session is busy. A pause then lets the record be cleaned."""
    session = await sessions.start()
    await sessions.refresh(session)
    await replay(sessions, session, 1)
    await refresh_steadily(sessions, session, clock, 2, 560)
    await refresh_steadily(sessions, session, clock, 150, 150)
    await refresh_steadily(sessions, session, clock, 1, 15)
    clock.offset_ms += 300_000 - 160_000

    assert (await sessions.spend(session, 5)).verdict == "replayed"


@pytest.mark.clause("decided-refresh-grace-setting")
async def test_a_changed_grace_applies_to_existing_records(sessions: Sessions, clock: Clock) -> None:
    sessions.set_lifetimes(refresh_grace_ms=60_000)
    session = await sessions.start()
    await refresh_steadily(sessions, session, clock, 250, 50)
    clock.offset_ms += 100_000
    sessions.set_lifetimes()
    await replay(sessions, session, 1, 50, 250)
    sessions.set_lifetimes(refresh_grace_ms=150_000)
    await replay(sessions, session, 200)
    sessions.set_lifetimes(refresh_grace_ms=0)

    assert (await sessions.spend(session, 250)).verdict == "replayed"


@pytest.mark.clause("decided-refresh-grace-setting", "decided-spent-times-in-64ths")
async def test_workers_with_different_graces_accept_retries(sessions: Sessions, clock: Clock) -> None:
    """Workers with the old and the new setting refresh in turns."""
    session = await sessions.start()
    for number in range(500):
        sessions.set_lifetimes(refresh_grace_ms=(200_000, 300_000)[number % 2])
        await refresh_steadily(sessions, session, clock, 1, 0.4)
    sessions.set_lifetimes(refresh_grace_ms=200_000)

    await replay(sessions, session, *range(80, 501, 7))


async def test_clock_moved_backwards_is_not_theft(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 2)
    clock.offset_ms -= 3_600_000

    assert [(await sessions.spend(session, each)).verdict for each in (1, 3, 2)] == ["repeated", "rotated", "repeated"]


@pytest.mark.clause("decided-i10-outage-is-not-theft", "decided-generation-ahead-of-redis")
@pytest.mark.parametrize("clock_back_ms", [0, 60_000])
async def test_lost_spends_of_a_busy_session_are_not_theft(
    sessions: Sessions, clock: Clock, clock_back_ms: int
) -> None:
    session = await sessions.start()
    await refresh_steadily(sessions, session, clock, 250, 100)
    sessions.store.copy(session.key, f"kept:{session.key}")
    await refresh_steadily(sessions, session, clock, 130, 52)
    sessions.store.copy(f"kept:{session.key}", session.key, replace=True)
    clock.offset_ms -= clock_back_ms
    assert (await sessions.spend(session, 380)).verdict == "recovered"
    await refresh_steadily(sessions, session, clock, 50, 20)

    await replay(sessions, session, *range(1, 431))


@pytest.mark.clause("decided-access-tokens-per-family", "decided-replays-of-one-generation")
async def test_replays_displace_no_honest_token(sessions: Sessions) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 99)
    await replay(sessions, session, *[98, 99] * 60)

    assert sessions.live(session) == [True] * 100 + [False] * 20 + [True] * 100


@pytest.mark.clause("decided-replays-of-one-generation", "decided-i7-revocation-is-final")
async def test_tokens_of_replays_end_with_the_session(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    for generation in range(1, 9):
        await sessions.refresh(session)
        await replay(sessions, session, generation, generation)
        clock.advance(130)
    assert any(sessions.live(session))
    shard, digest = session.identity.shard, session.first.family_digest
    await sessions.families.end(shard, digest, client_id="phone-app", reason="revoked")

    assert not any(sessions.live(session))


@pytest.mark.clause("decided-i7-revocation-is-final")
async def test_tokens_of_a_longer_lifetime_end_with_the_session(sessions: Sessions, clock: Clock) -> None:
    """An operator shortened the lifetime of access tokens while they lived."""
    session = await sessions.start()
    await sessions.refresh(session, 5)
    sessions.set_lifetimes(access_token_ms=60_000)
    for _ in range(8):
        clock.advance(65)
        await sessions.refresh(session)
    assert sessions.live(session)[:6] == [True] * 6
    shard, digest = session.identity.shard, session.first.family_digest
    await sessions.families.end(shard, digest, client_id="phone-app", reason="revoked")

    assert not any(sessions.live(session))


@pytest.mark.clause("decided-replays-of-one-generation")
async def test_streak_and_replays_of_the_last_generation_are_counted(sessions: Sessions) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 5)

    assert await replay(sessions, session, 1, 1, 2, 2, 3) == [(1, 1), (0, 2), (2, 1), (0, 2), (3, 1)]
    await sessions.refresh(session, 2)
    assert await replay(sessions, session, 3, *[5] * 7) == [(0, 2), (1, 1), *((0, n) for n in (2, 3, 4, 5, 6, 6))]


@pytest.mark.clause("decided-i3-constant-memory")
@pytest.mark.parametrize("with_replays", [False, True])
async def test_busy_hour_does_not_grow_the_record(
    sessions: Sessions, store: redis.Redis, clock: Clock, with_replays: bool
) -> None:
    def measure() -> int:
        return int(store.memory_usage(session.key, samples=0) or 0)

    session = await sessions.start()
    await sessions.refresh(session, 1000)
    clock.advance(601)
    await sessions.refresh(session)
    fresh = measure()
    for _ in range(600):
        clock.offset_ms += 1_000
        head = (await sessions.refresh(session)).head
        if with_replays:
            await replay(sessions, session, head - 1)
    assert 4 * fresh < measure() <= 12 * 1024
    clock.advance(601)
    await sessions.refresh(session)
    clock.advance(601)
    await sessions.refresh(session)

    assert measure() <= 1.15 * fresh
