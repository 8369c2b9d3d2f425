"""A reservation given back, or turned into a failed check."""

import pytest
import redis

from service.app import Parts
from service.store.attempts import Counter
from tests.conftest import Clock

ONE = Counter("login:{abc}:one", 3, 60_000)
TWO = Counter("login:{abc}:two", 5, 3_600_000)


@pytest.mark.clause("decided-only-failures-count")
async def test_a_check_that_passed_leaves_nothing(parts: Parts, store: redis.Redis) -> None:
    await parts.attempts.reserve([ONE, TWO])
    await parts.attempts.settle([ONE, TWO], passed=True)

    assert not store.exists(ONE.key, TWO.key)


async def test_a_check_that_passed_forgives_no_earlier_failure(parts: Parts, store: redis.Redis) -> None:
    """Or an attacker with an account of his own could clear his address in between."""
    await parts.attempts.reserve([ONE])
    await parts.attempts.settle([ONE], passed=False)
    await parts.attempts.reserve([ONE])
    await parts.attempts.settle([ONE], passed=True)

    assert store.hgetall(ONE.key) == {"failed": "1", "under_way": "0"}


async def test_a_check_that_passed_leaves_others_their_reservation(parts: Parts, store: redis.Redis) -> None:
    await parts.attempts.reserve([ONE])
    await parts.attempts.reserve([ONE])
    await parts.attempts.settle([ONE], passed=True)

    assert store.hgetall(ONE.key) == {"under_way": "1"}


async def test_a_failed_check_does_not_lengthen_the_window(parts: Parts, store: redis.Redis, clock: Clock) -> None:
    await parts.attempts.reserve([ONE])
    clock.advance(40)
    await parts.attempts.settle([ONE], passed=False)

    assert store.hgetall(ONE.key) == {"failed": "1", "under_way": "0"}
    assert 19_000 < int(store.pttl(ONE.key)) <= 20_000


@pytest.mark.clause("decided-i6-everything-expires")
async def test_a_check_that_fails_after_its_window_opens_the_next_one(
    parts: Parts, store: redis.Redis, clock: Clock
) -> None:
    await parts.attempts.reserve([ONE, TWO])
    clock.advance(61)
    await parts.attempts.settle([ONE, TWO], passed=False)

    assert store.hgetall(ONE.key) == {"failed": "1"}
    assert 59_000 < int(store.pttl(ONE.key)) <= 60_000
    assert 3_538_000 < int(store.pttl(TWO.key)) <= 3_539_000


async def test_a_check_that_passes_after_its_window_leaves_nothing(
    parts: Parts, store: redis.Redis, clock: Clock
) -> None:
    await parts.attempts.reserve([ONE])
    clock.advance(61)
    await parts.attempts.settle([ONE], passed=True)

    assert not store.exists(ONE.key)


async def test_no_counter_falls_below_nothing_under_way(parts: Parts, store: redis.Redis) -> None:
    await parts.attempts.settle([ONE], passed=False)
    await parts.attempts.settle([ONE], passed=False)

    assert store.hgetall(ONE.key) == {"failed": "2", "under_way": "0"}
