"""Asks the service while the test moves the time, so that nobody really waits for a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.loop_time import STEP_SECONDS, LoopTime
from tests.waiting import PATIENCE_SECONDS, read_real_clock, take_turn

Result = TypeVar("Result")


async def as_time_passes(held_time: LoopTime, work: Coroutine[Any, Any, Result]) -> tuple[Result, float]:
    """Return the result, and the seconds that passed on the held clock until it was there, up to a step more."""
    began, deadline = held_time.read(), read_real_clock() + PATIENCE_SECONDS
    working = asyncio.create_task(work)
    while True:
        await held_time.pass_by(0)
        if working.done():
            return working.result(), held_time.read() - began
        assert read_real_clock() < deadline, "the work does not end"
        await take_turn()
        await held_time.pass_by(STEP_SECONDS)
