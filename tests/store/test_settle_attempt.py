"""A reservation given back, or turned into a failed check."""

import pytest
import redis

from service.protocol.user import identify_user
from service.store.attempts import Counter, Exhausted, FailedLogins
from service.store.keys import login_key, origins_key
from service.worker import Worker
from tests.conftest import Clock, Elapsed

ONE = Counter("login:{abc}:one", 3, 60_000)
TWO = Counter("login:{abc}:two", 5, 3_600_000)


async def fail(worker: Worker, counter: Counter) -> None:
    await worker.attempts.reserve([counter])
    await worker.attempts.settle([counter], passed=False)


async def test_a_check_that_passed_leaves_others_their_reservation(worker: Worker, store: redis.Redis) -> None:
    await worker.attempts.reserve([ONE])
    await worker.attempts.reserve([ONE])
    await worker.attempts.settle([ONE], passed=True)

    assert store.get(f"lease:{ONE.key}") == "1"


@pytest.mark.clause("decided-throttle-lifetimes")
async def test_failure_extends_the_life_of_its_counter(
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
async def test_full_counter_ends_a_window_after_the_first_failure(
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
async def test_counter_never_outlives_its_window(worker: Worker, store: redis.Redis, elapsed: Elapsed) -> None:
    for _ in range(20):
        await worker.attempts.settle([ONE], passed=False)

    assert elapsed.leaves(int(store.pttl(ONE.key)), 60_000)


async def test_counter_of_running_checks_never_falls_below_zero(worker: Worker, store: redis.Redis) -> None:
    await worker.attempts.settle([ONE], passed=False)
    await worker.attempts.settle([ONE], passed=False)

    assert (store.get(ONE.key), store.exists(f"lease:{ONE.key}")) == ("2", 0)


@pytest.mark.clause("decided-throttle-lifetimes")
async def test_failures_of_a_user_are_listed_while_they_count(worker: Worker, store: redis.Redis, clock: Clock) -> None:
    alice = identify_user("main", "alice@example.com")
    of_all = Counter(login_key(alice), 100, 3_600_000)
    for origin in ("192.0.2.1", "192.0.2.2"):
        counters = [Counter(login_key(alice, origin), 2, 10_000), of_all]
        await worker.attempts.reserve(counters)
        await worker.attempts.settle(counters, passed=False)
        clock.advance(6)
    found = await worker.attempts.list_of_user(alice)

    assert [each[:3] for each in found] == [("", 2, 100)]
    assert store.hlen(origins_key(alice)) == 2
    clock.advance(70)
    assert not store.exists(origins_key(alice))
    assert await worker.attempts.list_of_user(alice) == []


def test_a_name_is_locked_only_at_its_limit() -> None:
    assert [FailedLogins("", failed, 10, 1_500).wait_seconds for failed in (9, 10)] == [0, 2]
