"""Waits for a state, with one bound that only a hang reaches.

A test states what has to become true, never how soon. `scripts/bench` measures how soon it is true on a quiet machine.
A test of a deadline moves a clock (`tests/support/loop_time.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import httpx2

from service.redis_client.deadline import StoreUnavailable
from service.store.reports.readiness import find_obstacle

if TYPE_CHECKING:
    from service.worker import Worker

MAX_WAIT_SECONDS = 60.0
PAUSE_SECONDS = 0.02
TURN_SECONDS = 0.0005

Result = TypeVar("Result")

read_real_clock = time.monotonic
"""The monotonic clock of the machine, also in tests that move or hold `time.monotonic`."""


def wait_until(is_so: Callable[..., object], what: str = "the condition") -> None:
    """Poll a condition. Raises AssertionError, which names the condition, if it never holds."""
    deadline = read_real_clock() + MAX_WAIT_SECONDS
    while not is_so():
        assert read_real_clock() < deadline, f"waited {MAX_WAIT_SECONDS:g} s for: {what}"
        time.sleep(PAUSE_SECONDS)


async def until(is_so: Callable[[], object], what: str = "the condition") -> None:
    """Poll a condition while the event loop runs, also while the test holds the time of the loop."""
    deadline = read_real_clock() + MAX_WAIT_SECONDS
    while not is_so():
        assert read_real_clock() < deadline, f"waited {MAX_WAIT_SECONDS:g} s for: {what}"
        await run_loop_once()


async def until_true(ask: Callable[[], Awaitable[object]], what: str) -> None:
    """Repeat the call until its result is true."""
    deadline = read_real_clock() + MAX_WAIT_SECONDS
    while not await ask():
        assert read_real_clock() < deadline, f"waited {MAX_WAIT_SECONDS:g} s for: {what}"
        await run_loop_once()


async def result_of(work: Awaitable[Result]) -> Result:
    """Return the result of work that needs no time of the loop to pass, also while the test holds that time."""
    task = asyncio.ensure_future(work)
    await until(task.done, "a result for which no time has to pass")
    return task.result()


async def until_status(ask: Callable[[], Awaitable[httpx2.Response]], status: int) -> None:
    """Repeat the request until its response has the status."""
    await _until_response(ask, lambda found: found == status)


async def until_other_status(ask: Callable[[], Awaitable[httpx2.Response]], status: int) -> httpx2.Response:
    """Repeat the request until its response has another status, and return that response."""
    return await _until_response(ask, lambda found: found != status)


async def _until_response(
    ask: Callable[[], Awaitable[httpx2.Response]], is_wanted: Callable[[int], bool]
) -> httpx2.Response:
    deadline = read_real_clock() + MAX_WAIT_SECONDS
    while not is_wanted((response := await ask()).status_code):
        told = f"still {response.status_code} after {MAX_WAIT_SECONDS:g} s: {response.text}"
        assert read_real_clock() < deadline, told
        await asyncio.to_thread(time.sleep, PAUSE_SECONDS)
    return response


async def until_reachable(worker: Worker) -> None:
    """Wait until the test's own connections to Redis are up again. The service under test has others."""
    await until_true(lambda: _is_reachable(worker), "Redis to be reachable")


async def _is_reachable(worker: Worker) -> bool:
    try:
        return await find_obstacle(worker.redis) is None
    except StoreUnavailable:
        return False


async def run_loop_once() -> None:
    """Run the event loop once, and let other processes run for a moment."""
    time.sleep(TURN_SECONDS)  # noqa: ASYNC251 - the time of the loop may stand still
    await asyncio.sleep(0)
