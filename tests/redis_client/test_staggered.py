"""Attempts that do not wait for the silent ones."""

from __future__ import annotations

import asyncio
import functools

from service.redis_client.connection import get_first
from tests.support.loop_time import LoopTime
from tests.support.waiting import until

PAUSE_SECONDS = 1.0


class Attempts:
    """Attempts that a test lets succeed or fail, by their numbers. `begun` lists those that began."""

    def __init__(self, count: int) -> None:
        self.begun: list[int] = []
        self.cancelled: list[int] = []
        self.ends: list[asyncio.Future[None]] = [asyncio.get_running_loop().create_future() for _ in range(count)]

    async def attempt(self, number: int) -> int:
        self.begun.append(number)
        try:
            await self.ends[number]
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        return number

    def find(self) -> asyncio.Task[int]:
        attempts = [functools.partial(self.attempt, number) for number in range(len(self.ends))]
        return asyncio.create_task(get_first(attempts, pause_seconds=PAUSE_SECONDS))

    def succeed(self, number: int) -> None:
        self.ends[number].set_result(None)

    def fail(self, number: int, error: str) -> None:
        self.ends[number].set_exception(ConnectionError(error))


async def test_after_a_failure_the_next_attempt_begins_at_once(held_time: LoopTime) -> None:
    attempts = Attempts(3)
    finding = attempts.find()
    for number in range(2):
        await held_time.advance_in_steps(0)
        assert attempts.begun == [*range(number + 1)]
        attempts.fail(number, "refused")
    attempts.succeed(2)

    assert await finding == 2


async def test_a_result_that_comes_too_late_is_discarded() -> None:
    """The same happens to a connection that was made in the same turn of the event loop as another one."""
    begun: list[int] = []
    discarded: list[int] = []
    is_time = asyncio.Event()

    async def attempt(number: int) -> int:
        begun.append(number)
        await is_time.wait()
        return number

    attempts = [functools.partial(attempt, number) for number in range(3)]
    finding = asyncio.ensure_future(get_first(attempts, pause_seconds=0, discard=discarded.append))
    await until(lambda: len(begun) == 3)
    is_time.set()
    first = await finding
    await asyncio.sleep(0)

    assert sorted([first, *discarded]) == [0, 1, 2]


async def test_who_gives_up_cancels_all_attempts(held_time: LoopTime) -> None:
    attempts = Attempts(2)
    finding = attempts.find()
    await held_time.advance_in_steps(PAUSE_SECONDS)
    assert attempts.begun == [0, 1]
    finding.cancel()
    await asyncio.wait({finding})
    await asyncio.sleep(0)

    assert sorted(attempts.cancelled) == [0, 1]
