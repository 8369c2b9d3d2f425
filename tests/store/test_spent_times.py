"""When a generation was spent: the grace counts from it, replays do not move it, many spends blur it only a little."""

import random
from collections.abc import Callable

import pytest

from service.store.families import Refused, Spent
from tests.conftest import Clock
from tests.store.sessions import Session, Sessions

GRACE_MS = 300_000
ENTRIES = 64
MOST_BLUR_MS = 2 * GRACE_MS // (ENTRIES - 1)
"""Where times are merged, the two neighbours of the time that goes lie no further apart than this."""


def spent(sessions: Sessions, session: Session) -> list[tuple[int, int]]:
    pairs = (entry.split(":") for entry in sessions.record(session)["spent"].split())
    return [(int(generation), int(ms)) for generation, ms in pairs]


@pytest.mark.clause("decided-grace-end-exclusive", "spec-8-grace-five-minutes", "spec-4.2-refresh-grace")
@pytest.mark.parametrize(("late_ms", "verdict"), [(-1, "repeated"), (0, "replayed"), (1, "replayed")])
async def test_the_grace_ends_to_the_millisecond(sessions: Sessions, late_ms: int, verdict: str) -> None:
    for _ in range(50):
        session = await sessions.start()
        await sessions.refresh(session)
        ((_, spent_ms),) = spent(sessions, session)

        async def replay(session: Session = session) -> Spent | Refused:
            return await sessions.spend(session, 1)

        exactly, outcome = await sessions.run_at(spent_ms + GRACE_MS + late_ms, replay)
        if exactly:
            break

    assert exactly
    assert verdict == outcome.verdict


@pytest.mark.clause("decided-grace-from-first-use")
async def test_replays_do_not_move_the_grace(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    await sessions.refresh(session)
    for _ in range(3):
        clock.advance(99)
        assert (await sessions.spend(session, 1)).verdict == "repeated"
    clock.advance(4)

    assert (await sessions.spend(session, 1)).verdict == "replayed"


@pytest.mark.clause("decided-replay-of-an-older-generation")
async def test_each_generation_has_a_grace_of_its_own(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    for _ in range(3):
        await sessions.refresh(session)
        clock.advance(140)

    assert [(await sessions.spend(session, generation)).verdict for generation in (3, 2)] == ["repeated", "repeated"]
    assert int(sessions.record(session)["head"]) == 4
    assert (await sessions.spend(session, 1)).verdict == "replayed"


@pytest.mark.clause("decided-refresh-grace-setting")
async def test_without_a_grace_no_replay_is_accepted(sessions: Sessions) -> None:
    sessions.set_lifetimes(refresh_grace_ms=0)
    session = await sessions.start()
    await sessions.refresh(session)

    assert (await sessions.spend(session, 1)).verdict == "replayed"


async def test_without_a_grace_one_time_at_most_is_kept(sessions: Sessions) -> None:
    sessions.set_lifetimes(refresh_grace_ms=0)
    session = await sessions.start()
    await sessions.refresh(session, 10)

    assert len(spent(sessions, session)) == 1


async def test_a_shorter_grace_counts_at_once(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    await sessions.refresh(session)
    clock.advance(61)
    sessions.set_lifetimes(refresh_grace_ms=60_000)

    assert (await sessions.spend(session, 1)).verdict == "replayed"


async def test_a_longer_grace_counts_for_what_is_still_remembered(sessions: Sessions, clock: Clock) -> None:
    sessions.set_lifetimes(refresh_grace_ms=60_000)
    session = await sessions.start()
    await sessions.refresh(session)
    clock.advance(120)
    sessions.set_lifetimes(refresh_grace_ms=GRACE_MS)

    assert (await sessions.spend(session, 1)).verdict == "repeated"


async def test_times_older_than_the_grace_are_forgotten(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 3)
    clock.advance(301)
    await sessions.refresh(session)

    assert [generation for generation, _ in spent(sessions, session)] == [4]
    assert sessions.record(session)["floor"] == "4"
    assert (await sessions.spend(session, 3)).verdict == "replayed"


async def test_a_clock_that_went_backwards_makes_no_thief(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 2)
    clock.offset_ms -= 3_600_000

    assert (await sessions.spend(session, 1)).verdict == "repeated"
    assert (await sessions.spend(session, 3)).verdict == "rotated"
    assert (await sessions.spend(session, 2)).verdict == "repeated"


def steady(index: int) -> float:
    return 1.0


def hurried_then_slow(index: int) -> float:
    return 0.05 if index % 100 < 70 else 4.0


def at_random(index: int) -> float:
    return random.Random(index).expovariate(1.5)


def all_at_once(index: int) -> float:
    return 0.0


@pytest.mark.clause("decided-spent-times-kept-coarser")
@pytest.mark.parametrize("pause", [steady, hurried_then_slow, at_random, all_at_once])
async def test_past_64_spends_times_are_kept_coarser_and_never_shorter(
    sessions: Sessions, clock: Clock, pause: Callable[[int], float]
) -> None:
    """Each generation still remembered counts from its own spend at the earliest, and from little later at the most."""
    session = await sessions.start()
    truly: dict[int, int] = {}
    for index in range(700):
        clock.offset_ms += round(1000 * pause(index))
        await sessions.refresh(session)
        truly[index + 1] = spent(sessions, session)[-1][1]

        entries = spent(sessions, session)
        floor, now_ms = int(sessions.record(session)["floor"]), truly[index + 1]
        assert len(entries) <= ENTRIES
        assert sorted(entries) == entries
        for generation in range(floor, index + 2):
            counted_ms = next(ms for last, ms in entries if generation <= last)
            assert 0 <= counted_ms - truly[generation] <= MOST_BLUR_MS, (generation, index)
        assert all(now_ms - truly[generation] >= GRACE_MS for generation in range(1, floor))


@pytest.mark.clause("decided-spent-times-kept-coarser", "decided-late-replay-ends-family")
async def test_a_busy_session_keeps_no_old_generation_alive(sessions: Sessions, clock: Clock) -> None:
    """Refreshes that come a little faster each time must not carry the time of the first one along."""
    session = await sessions.start()
    for index in range(500):
        clock.offset_ms += 1_200 - index
        await sessions.refresh(session)

    assert (await sessions.spend(session, 350)).verdict == "repeated"
    assert (await sessions.spend(session, 100)).verdict == "replayed"


async def test_replays_of_three_generations_in_a_row_are_counted(sessions: Sessions) -> None:
    session = await sessions.start()
    streaks = []
    for generation in (1, 2, 3):
        await sessions.refresh(session)
        for _ in range(2):
            outcome = await sessions.spend(session, generation)
            assert isinstance(outcome, Spent)
            streaks.append(outcome.streak)

    assert streaks == [1, 0, 2, 0, 3, 0]


async def test_a_generation_that_was_not_replayed_breaks_the_row(sessions: Sessions) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 5)
    outcomes = [await sessions.spend(session, generation) for generation in (1, 2, 4, 5, 5, 1)]

    assert [outcome.streak for outcome in outcomes if isinstance(outcome, Spent)] == [1, 2, 1, 2, 0, 1]
