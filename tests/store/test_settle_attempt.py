"""A reservation given back, or turned into a failed check."""

import pytest
import redis

from service.store.attempts import Counter, Exhausted
from service.worker import Worker
from tests.conftest import Clock, Elapsed

ONE = Counter("login:{abc}:one", 3, 60_000)
TWO = Counter("login:{abc}:two", 5, 3_600_000)


async def fail(worker: Worker, counter: Counter) -> None:
    await worker.attempts.reserve([counter])
    await worker.attempts.settle([counter], passed=False)


async def test_a_check_that_passed_forgives_no_earlier_failure(worker: Worker, store: redis.Redis) -> None:
    """Otherwise an attacker with an account could reset the counter of an address between guesses."""
    await worker.attempts.reserve([ONE])
    await worker.attempts.settle([ONE], passed=False)
    await worker.attempts.reserve([ONE])
    await worker.attempts.settle([ONE], passed=True)

    assert store.get(ONE.key) == "1"


async def test_a_check_that_passed_leaves_others_their_reservation(worker: Worker, store: redis.Redis) -> None:
    await worker.attempts.reserve([ONE])
    await worker.attempts.reserve([ONE])
    await worker.attempts.settle([ONE], passed=True)

    assert store.get(f"lease:{ONE.key}") == "1"


@pytest.mark.clause("decided-throttle-lifetimes")
async def test_each_failure_lengthens_a_counters_life_by_its_share_of_the_window(
    worker: Worker, store: redis.Redis, clock: Clock, elapsed: Elapsed
) -> None:
    """Three failures a minute: each one counts for twenty seconds."""
    await fail(worker, ONE)
    assert elapsed.leaves(int(store.pttl(ONE.key)), 20_000)
    clock.advance(10)
    await fail(worker, ONE)
    assert elapsed.leaves(int(store.pttl(ONE.key)), 30_000)
    clock.advance(10)
    await fail(worker, ONE)

    assert store.get(ONE.key) == "3"
    assert elapsed.leaves(int(store.pttl(ONE.key)), 40_000)


@pytest.mark.clause("decided-throttle-lifetimes", "decided-limit-stops-checking")
async def test_a_counter_that_is_full_ends_one_window_after_its_first_failure(
    worker: Worker, store: redis.Redis, clock: Clock
) -> None:
    await fail(worker, ONE)
    clock.advance(15)
    await fail(worker, ONE)
    clock.advance(15)
    await fail(worker, ONE)
    clock.advance(29)

    with pytest.raises(Exhausted):
        await worker.attempts.reserve([ONE])
    clock.advance(1)
    await worker.attempts.reserve([ONE])


@pytest.mark.clause("decided-throttle-lifetimes")
async def test_failures_at_the_permitted_rate_are_never_refused(worker: Worker, clock: Clock) -> None:
    for _ in range(50):
        await fail(worker, ONE)
        clock.advance(20)


@pytest.mark.clause("decided-throttle-lifetimes")
async def test_no_counter_outlives_its_window_however_many_failures_there_are(
    worker: Worker, store: redis.Redis, elapsed: Elapsed
) -> None:
    for _ in range(20):
        await worker.attempts.settle([ONE], passed=False)

    assert elapsed.leaves(int(store.pttl(ONE.key)), 60_000)


async def test_no_counter_falls_below_nothing_under_way(worker: Worker, store: redis.Redis) -> None:
    await worker.attempts.settle([ONE], passed=False)
    await worker.attempts.settle([ONE], passed=False)

    assert (store.get(ONE.key), store.exists(f"lease:{ONE.key}")) == ("2", 0)
