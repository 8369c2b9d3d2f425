"""Pauses between attempts to connect."""

from __future__ import annotations

import pytest

from service.redis_client.availability import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, STABLE_SECONDS, Backoff

pytestmark = pytest.mark.clause("decided-redis-away")

MANY = 2_000


def pauses_after(failures: int, took_seconds: float = 0) -> list[float]:
    found = []
    for _ in range(MANY):
        backoff = Backoff()
        for _ in range(failures):
            pause = backoff.fail(took_seconds)
        found.append(pause)
    return found


@pytest.mark.parametrize("failures", range(1, 9))
def test_the_bound_of_the_pauses_doubles_and_the_pauses_lie_anywhere_below_it(failures: int) -> None:
    bound = min(FIRST_PAUSE_SECONDS * 2 ** (failures - 1), MAX_PAUSE_SECONDS)
    pauses = pauses_after(failures)

    assert 0 <= min(pauses) < bound / 100
    assert bound * 0.99 < max(pauses) <= bound
    assert sum(pauses) / MANY == pytest.approx(bound / 2, rel=0.1)


def test_the_time_of_an_attempt_is_a_part_of_its_pause() -> None:
    """An attempt that waits for a silent server is long enough a pause."""
    assert max(pauses_after(9, took_seconds=1.5)) <= MAX_PAUSE_SECONDS - 1.5
    assert max(pauses_after(2, took_seconds=1.5)) == 0


def test_a_connection_that_lasted_is_made_again_at_once_and_the_pauses_begin_anew() -> None:
    backoff = Backoff()
    for _ in range(9):
        backoff.fail(0)

    assert backoff.end(STABLE_SECONDS) == 0
    assert backoff.fail(0) <= FIRST_PAUSE_SECONDS


def test_a_short_connection_and_its_pause_take_a_second_at_most() -> None:
    backoff = Backoff()

    assert max(backoff.end(0.4) for _ in range(MANY)) == pytest.approx(STABLE_SECONDS - 0.4, abs=0.02)
