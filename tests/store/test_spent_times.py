"""The time at which a generation was spent: the grace counts from it, and merged spends keep it nearly exact."""

import math
import random
from collections.abc import Callable

import pytest

from service.store.families import Spent
from tests.conftest import Clock
from tests.store.sessions import Session, Sessions

GRACE_MS = 300_000
SLICE_MS = math.ceil(GRACE_MS / 64)
MAX_SPENT_ENTRIES = 65
"""The number of entries after which a grace that begins within a slice has ended."""

FIELDS = "v h c u r"
"""The fields that every family has."""


def spent(sessions: Sessions, session: Session) -> list[tuple[int, int]]:
    """Return each entry of the record: its last generation, and its time in milliseconds."""
    family = sessions.parsed(session)
    noted = [(entry.last, entry.ms) for entry in family.spent]
    return noted + [(entry.generation, entry.ms) for entry in family.access if entry.generation]


@pytest.mark.clause("decided-grace-end-exclusive", "spec-8-grace-five-minutes", "spec-4.2-refresh-grace")
@pytest.mark.parametrize(("late_ms", "verdict"), [(-1, "repeated"), (0, "replayed"), (1, "replayed")])
async def test_the_grace_ends_to_the_millisecond(sessions: Sessions, late_ms: int, verdict: str) -> None:
    session = await sessions.start()
    await sessions.refresh(session)
    ((_, spent_ms),) = spent(sessions, session)
    outcome = await sessions.run_at(spent_ms + GRACE_MS + late_ms, lambda: sessions.spend(session, 1))

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
    assert sessions.parsed(session).head == 4
    assert (await sessions.spend(session, 1)).verdict == "replayed"


@pytest.mark.clause("decided-refresh-grace-setting")
async def test_without_a_grace_no_replay_is_accepted(sessions: Sessions) -> None:
    sessions.set_lifetimes(refresh_grace_ms=0)
    session = await sessions.start()
    await sessions.refresh(session)

    assert (await sessions.spend(session, 1)).verdict == "replayed"


async def test_without_a_grace_no_times_are_kept_but_those_of_the_access_tokens(sessions: Sessions) -> None:
    sessions.set_lifetimes(refresh_grace_ms=0)
    session = await sessions.start()
    await sessions.refresh(session, 110)

    assert sessions.parsed(session).spent == ()
    assert len(sessions.parsed(session).access) == 100


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


async def test_what_neither_the_grace_nor_an_access_token_needs_is_forgotten(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 3)
    clock.advance(601)
    await sessions.refresh(session)

    assert [generation for generation, _ in spent(sessions, session)] == [4]
    assert sessions.parsed(session).floor == 4
    assert (await sessions.spend(session, 3)).verdict == "replayed"


async def test_where_access_tokens_overlap_a_few_of_the_oldest_are_kept_too_long(
    sessions: Sessions, clock: Clock
) -> None:
    """A refresh follows another after nine minutes, and access tokens live for ten."""
    session = await sessions.start()
    for generation in range(1, 20):
        clock.advance(540)
        await sessions.refresh(session)
        assert max(0, generation - 3) <= spent(sessions, session)[0][0], generation


async def test_the_times_of_a_busy_while_are_forgotten_once_it_is_over(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 150)
    clock.advance(601)
    await sessions.refresh(session)

    assert set(sessions.record(session)) == {*FIELDS.split(), "a51"}


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
async def test_spends_of_one_slice_share_the_latest_time(
    sessions: Sessions, clock: Clock, pause: Callable[[int], float]
) -> None:
    """The grace of each generation ends at the earliest at its own time, and at most one slice later."""
    session = await sessions.start()
    truly: dict[int, int] = {}
    for index in range(700):
        clock.offset_ms += round(1000 * pause(index))
        await sessions.refresh(session)
        family = sessions.parsed(session)
        truly[index + 1] = now_ms = family.used_ms

        assert len(family.spent) <= MAX_SPENT_ENTRIES
        assert len(family.access) <= 100
        for generation, truly_ms in truly.items():
            counted_ms = family.find_spent_ms(generation)
            if counted_ms is None:
                assert now_ms - truly_ms >= GRACE_MS, (generation, index)
            else:
                assert 0 <= counted_ms - truly_ms < SLICE_MS, (generation, index)


@pytest.mark.clause("decided-spent-times-kept-coarser", "decided-late-replay-ends-family")
async def test_a_busy_session_keeps_no_old_generation_alive(sessions: Sessions, clock: Clock) -> None:
    """Refreshes at growing speed must not carry the time of the first one along."""
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
