"""The clock of the time limits forgives what others do with the machine, and nothing else."""

from __future__ import annotations

import asyncio
import time

from tests.fair_clock import read_fair_clock

SPAN_SECONDS = 0.3
FORGIVEN_SECONDS = 0.2


async def test_a_machine_that_does_not_let_us_run_costs_no_time() -> None:
    started = read_fair_clock()
    await asyncio.sleep(0)

    time.sleep(SPAN_SECONDS)  # noqa: ASYNC251 - as if others had the processor
    at_once = read_fair_clock() - started
    await asyncio.sleep(0)

    assert at_once < SPAN_SECONDS - FORGIVEN_SECONDS
    assert read_fair_clock() - started < SPAN_SECONDS - FORGIVEN_SECONDS


async def test_what_is_waited_for_takes_its_time() -> None:
    started, truly_started = read_fair_clock(), time.monotonic()

    while time.monotonic() - truly_started < SPAN_SECONDS:  # noqa: ASYNC110 - many short sleeps are the point
        await asyncio.sleep(0.01)

    assert read_fair_clock() - started > SPAN_SECONDS / 2


async def test_work_that_holds_the_event_loop_up_takes_its_time() -> None:
    started, worked = read_fair_clock(), time.thread_time()

    while time.thread_time() - worked < SPAN_SECONDS:
        pass

    assert read_fair_clock() - started >= SPAN_SECONDS - 0.01
