"""The time of the event loops and of the service's clocks in this process.

It passes at a fifth of the machine's pace, so that no time limit is reached because the machine is slow. A test of a
time limit asks for `held_time` and moves it. Redis and other processes have the time of the machine. `Clock` in
`conftest.py` moves the time that Redis and the Lua scripts use.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import pytest

from service.redis_client import deadline
from tests.support.waiting import MAX_WAIT_SECONDS, read_real_clock, run_loop_once

PACE = 0.2
STEP_SECONDS = 0.05
START_SECONDS = 1000.0
"""The first reading. It is the same on every machine, so that times are rounded in the same way."""

TURNS = 20
"""The number of turns of the event loop after which no work is left, that of scripted servers included."""

SAME_SECONDS = 1e-6
"""The largest difference of two times that are equal but for rounding."""

Result = TypeVar("Result")


class LoopTime:
    """A monotonic clock with a pace. A pace of 0 stops it."""

    def __init__(self) -> None:
        self._pace = PACE
        self._base = START_SECONDS
        self._real_base = read_real_clock()

    def read(self) -> float:
        """Return the time in seconds, to be compared with other readings of this clock only."""
        return self._base + (read_real_clock() - self._real_base) * self._pace

    def advance(self, seconds: float) -> None:
        """Move the time. What is due by then runs in the next turns of the event loop."""
        self._base += seconds

    async def advance_in_steps(self, seconds: float) -> None:
        """Move the time in small steps and run the event loop between them, so that each timer fires in time."""
        end = self.read() + seconds
        await _run_pending_work()
        while (left := end - self.read()) > 0:
            self.advance(min(STEP_SECONDS, left))
            await _run_pending_work()

    async def advance_until_done(self, work: Awaitable[Result]) -> Result:
        """Move the time in small steps until work that waits for a time limit is done. Returns its result."""
        task, deadline = asyncio.ensure_future(work), read_real_clock() + MAX_WAIT_SECONDS
        await _run_pending_work()
        while not task.done():
            assert read_real_clock() < deadline, "the work does not end, however much time passes"
            await run_loop_once()
            await self.advance_in_steps(STEP_SECONDS)
        return task.result()

    def is_due_in(self, seconds: float) -> bool:
        """Return True if a timer of the running event loop ends this many seconds after now. The time must be held."""
        timers: Iterable[asyncio.TimerHandle] = vars(asyncio.get_running_loop())["_scheduled"]
        due = self.read() + seconds
        return any(abs(timer.when() - due) < SAME_SECONDS and not timer.cancelled() for timer in timers)

    def held(self) -> AbstractContextManager[None]:
        """Let no time pass but what `advance` adds."""
        return self.running_at(0)

    @contextmanager
    def running_at(self, pace: float) -> Iterator[None]:
        """Let time pass at this pace. At 1 a test can wait for a real Redis while a pause of the service ends."""
        before = self._pace
        self._set_pace(pace)
        try:
            yield
        finally:
            self._set_pace(before)

    def _set_pace(self, pace: float) -> None:
        self._base, self._real_base, self._pace = self.read(), read_real_clock(), pace


async def _run_pending_work() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


@contextmanager
def moving_loop_time() -> Iterator[LoopTime]:
    """Replace the monotonic clock of this process, and the one that the connections to Redis read."""
    loop_time, read_clock = LoopTime(), deadline.read_clock
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", loop_time.read)
        for name, module in list(sys.modules.items()):
            if name.startswith("service.") and getattr(module, "read_clock", None) is read_clock:
                patch.setattr(module, "read_clock", loop_time.read)
        yield loop_time
