"""Pauses between attempts to connect."""

from __future__ import annotations

import pytest

from service.redis_client.availability import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, Backoff
from service.redis_client.options import STABLE_SECONDS

pytestmark = pytest.mark.clause("decided-redis-away")

MANY = 2_000


def pauses_after(failures: int, took_seconds: float = 0) -> list[float]:
    found = []
    for _ in range(MANY):
        backoff = Backoff(stable_seconds=STABLE_SECONDS)
        for _ in range(failures):
            pause = backoff.fail(took_seconds)
        found.append(pause)
    return found


@pytest.mark.parametrize("failures", [1, 2, 8])
def test_pauses_are_random_below_a_doubling_bound(failures: int) -> None:
    bound = min(FIRST_PAUSE_SECONDS * 2 ** (failures - 1), MAX_PAUSE_SECONDS)
    pauses = pauses_after(failures)

    assert 0 <= min(pauses) < bound / 100
    assert bound * 0.99 < max(pauses) <= bound
    assert sum(pauses) / MANY == pytest.approx(bound / 2, rel=0.1)
