"""The circuit breaker of a provider. Tests of its times hold the time and move it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from service.protocol.errors import AccessDenied, InvalidGrant, TemporarilyUnavailable
from service.protocol.provider_responses import InvalidProviderResponse, ProviderError
from service.realms.provider.circuit_breaker import (
    CALL_SECONDS,
    CALLS,
    FAILURES,
    FAILURES_WITHIN_SECONDS,
    OPEN_SECONDS,
    CircuitBreaker,
)
from service.redis_client.deadline import StoreUnavailable
from tests.support.loop_time import SAME_SECONDS, LoopTime

pytestmark = pytest.mark.clause("decided-external-limits")

ANSWERS = [
    pytest.param(None, id="a login"),
    pytest.param(InvalidGrant("password_wrong"), id="a wrong password"),
    pytest.param(AccessDenied("provider_denied"), id="a refusal in the browser"),
    pytest.param(ProviderError("invalid_client"), id="another refusal"),
]


@pytest.fixture
async def breaker() -> CircuitBreaker:
    return CircuitBreaker()


class ConcurrentCalls:
    """Concurrent calls that wait until the test ends them."""

    def __init__(self, breaker: CircuitBreaker) -> None:
        self._breaker = breaker
        self.inside = 0
        self.calls: list[asyncio.Task[None]] = []
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def _call(self) -> None:
        async with self._breaker.guard():
            self.inside += 1
            try:
                await asyncio.shield(self._end)
            finally:
                self.inside -= 1

    async def start(self, count: int) -> list[asyncio.Task[None]]:
        """Start so many more calls, and let each run until it waits."""
        calls = [asyncio.create_task(self._call()) for _ in range(count)]
        self.calls += calls
        await settle()
        return calls

    async def finish(self, error: Exception | None = None) -> list[BaseException | None]:
        """End all calls. Returns the result of each."""
        if error is None:
            self._end.set_result(None)
        else:
            self._end.set_exception(error)
            self._end.exception()  # marked as retrieved, also if no call waited
        return await asyncio.gather(*self.calls, return_exceptions=True)


async def settle() -> None:
    """Let all tasks run until each of them waits."""
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def concurrent_calls(breaker: CircuitBreaker, count: int) -> AsyncIterator[ConcurrentCalls]:
    concurrent = ConcurrentCalls(breaker)
    await concurrent.start(count)
    yield concurrent
    for call in concurrent.calls:
        call.cancel()
    await asyncio.gather(*concurrent.calls, return_exceptions=True)


async def call(breaker: CircuitBreaker, error: BaseException | None = None) -> None:
    """Make one call that ends at once, and raises the given exception if there is one."""
    with suppress(type(error) if error else InvalidProviderResponse):
        async with breaker.guard():
            if error is not None:
                raise error


async def fail(breaker: CircuitBreaker, times: int = 1) -> None:
    for _ in range(times):
        await call(breaker, InvalidProviderResponse("no"))


async def open_circuit(breaker: CircuitBreaker) -> None:
    await fail(breaker, FAILURES)
    assert is_open(breaker)


def is_open(breaker: CircuitBreaker) -> bool:
    """Return True if the circuit is open, so that a call is refused at once."""
    try:
        breaker.check()
    except TemporarilyUnavailable:
        return True
    return False


def reason_of(call: asyncio.Task[None]) -> str:
    error = call.exception()
    assert isinstance(error, TemporarilyUnavailable)
    assert error.retry_after_seconds == 1
    return error.reason


# Concurrent calls


async def test_twenty_calls_run_at_once_and_the_next_waits(breaker: CircuitBreaker) -> None:
    assert CALLS == 20
    async with concurrent_calls(breaker, CALLS) as concurrent:
        (late,) = await concurrent.start(1)
        assert (concurrent.inside, late.done()) == (CALLS, False)

        concurrent.calls[0].cancel()
        await settle()
        assert (concurrent.inside, late.done()) == (CALLS, False)
        await concurrent.finish()

        assert late.exception() is None


async def test_call_without_room_is_refused_after_a_second(breaker: CircuitBreaker, held_time: LoopTime) -> None:
    async with concurrent_calls(breaker, CALLS) as concurrent:
        late = await concurrent.start(3)
        held_time.advance(0.99)
        await settle()
        assert not any(one.done() for one in late)
        held_time.advance(0.02)
        await settle()

        assert [reason_of(one) for one in late] == ["provider_busy"] * 3
        assert concurrent.inside == CALLS


@pytest.mark.parametrize("error", [*ANSWERS, InvalidProviderResponse("no"), StoreUnavailable(), RuntimeError()])
async def test_every_finished_call_frees_its_slot(breaker: CircuitBreaker, error: Exception | None) -> None:
    for _ in range(CALLS - 1):
        await call(breaker, error)

    async with concurrent_calls(breaker, CALLS) as concurrent:
        assert concurrent.inside == CALLS


async def test_slow_call_is_cancelled_and_counts_as_a_failure(breaker: CircuitBreaker, held_time: LoopTime) -> None:
    await fail(breaker, FAILURES - 1)
    async with concurrent_calls(breaker, 1) as concurrent:
        held_time.advance(4.99)
        await settle()
        assert not concurrent.calls[0].done()
        held_time.advance(0.02)
        await settle()

        assert isinstance(concurrent.calls[0].exception(), InvalidProviderResponse)
    assert is_open(breaker)


# The circuit


@pytest.mark.parametrize("answer", ANSWERS)
async def test_twenty_failures_without_an_answer_open_the_circuit(
    breaker: CircuitBreaker, answer: Exception | None
) -> None:
    assert (FAILURES, FAILURES_WITHIN_SECONDS, OPEN_SECONDS) == (20, 30, 1)
    await fail(breaker, FAILURES - 1)
    await call(breaker, answer)
    await fail(breaker, FAILURES - 1)
    assert not is_open(breaker)

    await fail(breaker)

    assert is_open(breaker)


@pytest.mark.parametrize(("seconds", "opens"), [(30 - SAME_SECONDS, True), (30 + SAME_SECONDS, False)])
async def test_only_a_row_within_thirty_seconds_counts(
    breaker: CircuitBreaker, held_time: LoopTime, seconds: float, opens: bool
) -> None:
    await fail(breaker)
    held_time.advance(seconds)
    await fail(breaker, FAILURES - 1)

    assert is_open(breaker) == opens


@pytest.mark.parametrize("error", [StoreUnavailable(), RuntimeError(), asyncio.CancelledError()])
async def test_own_errors_do_not_affect_the_circuit(breaker: CircuitBreaker, error: BaseException) -> None:
    await fail(breaker, FAILURES - 1)
    for _ in range(2 * FAILURES):
        await call(breaker, error)
    assert not is_open(breaker)

    await fail(breaker)

    assert is_open(breaker)


async def test_waiting_calls_are_refused_when_the_circuit_opens(breaker: CircuitBreaker) -> None:
    async with concurrent_calls(breaker, CALLS + 5) as concurrent:
        ends = await concurrent.finish(InvalidProviderResponse("no"))

    assert [type(finish) for finish in ends[:CALLS]] == [InvalidProviderResponse] * CALLS
    assert [reason_of(one) for one in concurrent.calls[CALLS:]] == ["provider_unavailable"] * 5


# The trial call


async def test_open_circuit_tries_one_call_each_second(breaker: CircuitBreaker, held_time: LoopTime) -> None:
    await open_circuit(breaker)
    held_time.advance(OPEN_SECONDS)

    async with concurrent_calls(breaker, 50) as concurrent:
        assert concurrent.inside == 1
        held_time.advance(CALL_SECONDS - 0.1)
        late = await concurrent.start(10)
        assert concurrent.inside == 1
        assert [reason_of(one) for one in late] == ["provider_unavailable"] * 10
        assert sum(one.done() for one in concurrent.calls) == 59


async def test_a_failed_trial_keeps_the_circuit_open_for_a_second(breaker: CircuitBreaker, held_time: LoopTime) -> None:
    await open_circuit(breaker)
    for _ in range(5):
        held_time.advance(OPEN_SECONDS - SAME_SECONDS)
        assert is_open(breaker)
        held_time.advance(2 * SAME_SECONDS)
        assert not is_open(breaker)
        await fail(breaker)
        assert is_open(breaker)


@pytest.mark.parametrize("answer", ANSWERS)
async def test_an_answered_trial_closes_the_circuit_for_all(
    breaker: CircuitBreaker, held_time: LoopTime, answer: Exception | None
) -> None:
    await open_circuit(breaker)
    held_time.advance(OPEN_SECONDS)
    await call(breaker, answer)

    async with concurrent_calls(breaker, CALLS) as concurrent:
        assert concurrent.inside == CALLS
    await fail(breaker, FAILURES - 1)
    assert not is_open(breaker)


@pytest.mark.parametrize("error", [StoreUnavailable(), RuntimeError(), asyncio.CancelledError()])
async def test_inconclusive_trial_allows_another_trial(
    breaker: CircuitBreaker, held_time: LoopTime, error: BaseException
) -> None:
    await open_circuit(breaker)
    held_time.advance(OPEN_SECONDS)
    await call(breaker, error)

    async with concurrent_calls(breaker, 10) as concurrent:
        assert concurrent.inside == 1
