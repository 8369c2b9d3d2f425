"""The time of the event loops and of the service's clocks in this process.

It passes at a tenth of the machine's pace, so that no time limit is reached because the machine is slow. A test about
a time limit asks for `held_time` and moves it. Redis and other processes have the time of the machine; `Clock` in
`conftest.py` moves what Redis and the Lua scripts take for the time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from service.store import links
from tests.waiting import read_real_clock, take_turn

PACE = 0.1
STEP_SECONDS = 0.05

Result = TypeVar("Result")


class LoopTime:
    """A monotonic clock with a pace; a pace of 0 holds it."""

    def __init__(self) -> None:
        self._pace = PACE
        self._base = self._real_base = read_real_clock()

    def read(self) -> float:
        """Return the time in seconds, to be compared with other readings of this clock only."""
        return self._base + (read_real_clock() - self._real_base) * self._pace

    def advance(self, seconds: float) -> None:
        """Move the time. What is due by then runs at the next turns of the event loop."""
        self._base += seconds

    async def outlast(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Move the time in small steps until the work is done. Returns its result."""
        task = asyncio.create_task(work)
        while not task.done():
            self.advance(STEP_SECONDS)
            await take_turn()
        return await task

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no time pass but what `advance` adds."""
        self._set_pace(0)
        try:
            yield
        finally:
            self._set_pace(PACE)

    def _set_pace(self, pace: float) -> None:
        self._base, self._real_base, self._pace = self.read(), read_real_clock(), pace


@contextmanager
def moving_loop_time() -> Iterator[LoopTime]:
    """Replace the monotonic clock of this process, and the one that the connections to Redis read."""
    loop_time, read_clock = LoopTime(), links.read_clock
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", loop_time.read)
        for name, module in list(sys.modules.items()):
            if name.startswith("service.") and getattr(module, "read_clock", None) is read_clock:
                patch.setattr(module, "read_clock", loop_time.read)
        yield loop_time
