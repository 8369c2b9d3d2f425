"""Attempts that do not wait for the silent ones."""

from __future__ import annotations

import asyncio
import functools

import pytest

from service.store.staggered import NoneSucceeded, get_first
from tests.waiting import until

SILENT_SECONDS = 60.0


class Attempts:
    """Attempts that succeed or fail after some seconds, by their numbers. `begun` lists those that began."""

    def __init__(self, *ends: tuple[float, str | None]) -> None:
        self.begun: list[int] = []
        self.cancelled: list[int] = []
        self._ends = ends

    async def attempt(self, number: int) -> int:
        seconds, error = self._ends[number]
        self.begun.append(number)
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        if error is not None:
            raise ConnectionError(error)
        return number

    async def find(self, pause_seconds: float) -> int:
        attempts = [functools.partial(self.attempt, number) for number in range(len(self._ends))]
        return await get_first(attempts, pause_seconds=pause_seconds)


async def test_an_attempt_that_succeeds_in_time_is_the_only_one() -> None:
    attempts = Attempts((0, None), (0, None))

    assert await attempts.find(SILENT_SECONDS) == 0
    assert attempts.begun == [0]


async def test_after_a_failure_the_next_attempt_begins_at_once() -> None:
    attempts = Attempts((0, "one"), (0, "two"), (0, None))

    assert await attempts.find(SILENT_SECONDS) == 2


async def test_a_silent_attempt_does_not_hold_up_the_next_and_is_cancelled() -> None:
    attempts = Attempts((SILENT_SECONDS, None), (SILENT_SECONDS, None), (0, None))

    assert await attempts.find(0.01) == 2
    await asyncio.sleep(0)
    assert sorted(attempts.cancelled) == [0, 1]


async def test_a_slow_attempt_may_still_be_the_first() -> None:
    attempts = Attempts((0.05, None), (SILENT_SECONDS, None))

    assert await attempts.find(0.01) == 0


async def test_a_late_failure_is_not_the_end() -> None:
    attempts = Attempts((0.03, "late"), (0.06, None))

    assert await attempts.find(0.01) == 1


async def test_where_all_fail_each_error_is_told_once() -> None:
    attempts = Attempts((0.02, "slow"), (0, "refused"), (0, "refused"))

    with pytest.raises(NoneSucceeded, match=r"^refused; slow$") as failed:
        await attempts.find(0.01)

    assert [str(error) for error in failed.value.errors] == ["refused", "refused", "slow"]


async def test_a_result_that_comes_too_late_is_discarded() -> None:
    """As a connection that was made in the same turn of the event loop as another one."""
    discarded: list[int] = []
    is_time = asyncio.Event()

    async def attempt(number: int) -> int:
        await is_time.wait()
        return number

    attempts = [functools.partial(attempt, number) for number in range(3)]
    finding = asyncio.ensure_future(get_first(attempts, pause_seconds=0, discard=discarded.append))
    await asyncio.sleep(0.01)
    is_time.set()
    first = await finding
    await asyncio.sleep(0)

    assert sorted([first, *discarded]) == [0, 1, 2]


async def test_who_gives_up_cancels_all_attempts() -> None:
    attempts = Attempts((SILENT_SECONDS, None), (SILENT_SECONDS, None))
    finding = asyncio.ensure_future(attempts.find(0.01))
    await until(lambda: len(attempts.begun) == 2)
    finding.cancel()
    await asyncio.wait({finding})
    await asyncio.sleep(0)

    assert sorted(attempts.cancelled) == [0, 1]
