"""Room for a check of a secret, reserved on every counter before the check."""

import pytest
import redis

from service.redis_client.deadline import UnreadableRecord
from service.store.attempts import Counter
from service.store.client import load_script
from service.worker import Worker
from tests.conftest import Clock, Elapsed

ONE = Counter("login:{abc}:one", 3, 60_000)
TWO = Counter("login:{abc}:two", 5, 3_600_000)


async def reserve(worker: Worker, *counters: Counter) -> list[str | int]:
    limits = [number for counter in counters for number in (counter.most, counter.window_ms)]
    keys = [counter.key for counter in counters]
    return await worker.redis.run(load_script("reserve_attempt"), counters=keys, limits=limits)


async def fail(worker: Worker, counter: Counter, times: int) -> None:
    for _ in range(times):
        await reserve(worker, counter)
        await worker.attempts.settle([counter], passed=False)


async def test_a_reservation_counts_on_every_counter(worker: Worker, store: redis.Redis) -> None:
    assert (await reserve(worker, ONE, TWO))[0] == "reserved"
    assert (await reserve(worker, ONE, TWO))[0] == "reserved"
    assert [store.get(f"lease:{ONE.key}"), store.get(f"lease:{TWO.key}")] == ["2", "2"]
    assert not store.exists(ONE.key, TWO.key)


@pytest.mark.clause("decided-newer-record")
async def test_mark_of_another_form_is_an_outage(worker: Worker, store: redis.Redis) -> None:
    """Nothing is reserved."""
    store.set(ONE.key.replace("login", "mark"), "3 1798479686226")
    with pytest.raises(UnreadableRecord):
        await worker.attempts.reserve([ONE])
    assert not store.exists(f"lease:{ONE.key}")


@pytest.mark.clause("decided-i6-everything-expires")
async def test_reservation_renews_only_its_lease(
    worker: Worker, store: redis.Redis, clock: Clock, elapsed: Elapsed
) -> None:
    await fail(worker, TWO, 1)
    await reserve(worker, ONE, TWO)
    clock.advance(5)
    await reserve(worker, ONE, TWO)

    assert elapsed.leaves(int(store.pttl(f"lease:{ONE.key}")), 10_000)
    assert elapsed.leaves(int(store.pttl(TWO.key)), 715_000)


async def test_expired_reservations_block_no_check(worker: Worker, clock: Clock) -> None:
    for _ in range(3):
        await reserve(worker, ONE)
    clock.advance(11)

    assert (await reserve(worker, ONE))[0] == "reserved"


async def test_failed_checks_and_those_under_way_count_together(worker: Worker) -> None:
    await fail(worker, ONE, 2)

    assert (await reserve(worker, ONE))[0] == "reserved"
    assert await reserve(worker, ONE) == ["busy"]


@pytest.mark.clause("decided-limit-stops-checking")
async def test_limit_refuses_until_the_window_ends(worker: Worker, store: redis.Redis, clock: Clock) -> None:
    await fail(worker, ONE, 3)
    clock.advance(20)
    verdict, wait_ms = await reserve(worker, ONE, TWO)

    assert verdict == "exhausted"
    assert 39_000 < int(wait_ms) <= 40_000
    assert not store.exists(TWO.key)
    clock.advance(41)
    assert (await reserve(worker, ONE, TWO))[0] == "reserved"
