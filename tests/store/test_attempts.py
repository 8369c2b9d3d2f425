"""The throttle as its callers see it: parallel guesses, waiting, and how long a refusal lasts."""

import asyncio

import pytest
import redis

from service.app import Parts
from service.protocol.errors import TemporarilyUnavailable
from service.store import attempts as attempts_module
from service.store.attempts import Attempts, Counter, Exhausted
from tests.conftest import Clock

TEN = Counter("login:{abc}:ten", 10, 60_000)
MANY = Counter("login:{abc}:many", 1_000, 3_600_000)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine under load may take its time."""
    monkeypatch.setattr(attempts_module, "PATIENCE_SECONDS", 30)


async def guess(attempts: Attempts, checked: list[int]) -> str:
    """One guess at a password, wrong after a moment."""
    try:
        await attempts.reserve([TEN, MANY])
    except Exhausted:
        return "refused"
    checked.append(1)
    await asyncio.sleep(0)
    await attempts.settle([TEN, MANY], passed=False)
    return "wrong"


@pytest.mark.clause("6749-4.3.2-brute-force", "6749-2.3.1-brute-force")
async def test_a_hundred_parallel_guesses_get_no_more_checks_than_the_limit(
    parts: Parts, store: redis.Redis, patience: None
) -> None:
    checked: list[int] = []
    outcomes = await asyncio.gather(*(guess(parts.attempts, checked) for _ in range(100)))

    assert 10 == len(checked) == outcomes.count("wrong")
    assert outcomes.count("refused") == 90
    assert {"failed": "10", "under_way": "0"} == store.hgetall(TEN.key) == store.hgetall(MANY.key)


@pytest.mark.clause("decided-parallel-logins-wait", "decided-only-failures-count")
async def test_a_hundred_right_logins_at_once_all_pass(parts: Parts, store: redis.Redis, patience: None) -> None:
    async def log_in() -> None:
        await parts.attempts.reserve([TEN])
        await parts.attempts.settle([TEN], passed=True)

    await asyncio.gather(*(log_in() for _ in range(100)))

    assert not store.exists(TEN.key)


async def test_whoever_waits_in_vain_is_told_to_come_back(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts_module, "PATIENCE_SECONDS", 0.05)
    for _ in range(10):
        await parts.attempts.reserve([TEN])

    with pytest.raises(TemporarilyUnavailable) as caught:
        await parts.attempts.reserve([TEN])
    assert caught.value.retry_after_seconds == 1


@pytest.mark.clause("decided-i6-everything-expires")
async def test_reservations_of_a_worker_that_died_end_with_the_window(parts: Parts, clock: Clock) -> None:
    for _ in range(10):
        await parts.attempts.reserve([TEN])
    clock.advance(61)
    await parts.attempts.reserve([TEN])


@pytest.mark.clause("decided-limit-stops-checking")
async def test_a_refusal_lasts_until_the_window_ends(parts: Parts, clock: Clock) -> None:
    checked: list[int] = []
    for _ in range(10):
        await guess(parts.attempts, checked)
    clock.advance(15)

    with pytest.raises(Exhausted) as caught:
        await parts.attempts.reserve([TEN])
    assert 44_000 < caught.value.wait_ms <= 45_000
    assert 44_000 < await parts.attempts.find_wait_ms([MANY, TEN]) <= 45_000
    clock.advance(46)
    assert await parts.attempts.find_wait_ms([MANY, TEN]) == 0
    assert await guess(parts.attempts, checked) == "wrong"


async def test_asking_for_the_wait_reserves_nothing(parts: Parts, store: redis.Redis) -> None:
    assert await parts.attempts.find_wait_ms([TEN, MANY]) == 0
    assert not store.exists(TEN.key, MANY.key)
