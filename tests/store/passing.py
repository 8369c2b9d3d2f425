"""Time that passes in steps, each of them when all that was asked until then is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakSet

import pytest

from service.store.wire import Wire
from tests.loop_time import LoopTime
from tests.store.scripted_redis import held_back
from tests.waiting import until

STEP_SECONDS = 0.05
QUIET_TURNS = 15
"""Turns of the event loop in which the tasks do what a timer or an answer lets them do."""

Result = TypeVar("Result")


class Passing:
    """The held time, moved without a guess at how long the machine takes for an answer."""

    def __init__(self, held_time: LoopTime, wires: WeakSet[Wire]) -> None:
        self._held_time = held_time
        self._wires = wires

    def read(self) -> float:
        """Return the time in seconds."""
        return self._held_time.read()

    async def settle(self) -> None:
        """Wait until nothing more happens without a move of the time."""
        turns = 0
        while turns < QUIET_TURNS:
            await asyncio.sleep(0)
            turns += 1
            if not self._is_quiet():
                await until(self._is_quiet, "an answer to each command")
                turns = 0

    async def let_pass(self, seconds: float, *, step: float = STEP_SECONDS) -> None:
        """Move the time by so many seconds, and settle after each step."""
        await self.settle()
        end = self.read() + seconds
        while (left := end - self.read()) > 0:
            self._held_time.advance(min(step, left))
            await self.settle()

    async def let_pass_until(self, is_so: Callable[[], object], seconds: float, *, step: float = STEP_SECONDS) -> None:
        """Move the time until the condition is so. Raises AssertionError where it is not within these seconds.

        At their end the time stands still until it is so.
        """
        await self.settle()
        end = self.read() + seconds
        while not is_so() and (left := end - self.read()) > 0:
            self._held_time.advance(min(step, left))
            await self.settle()
        await until(is_so, f"what is to be so within {seconds:g} s of the held time")

    async def run(self, work: Awaitable[Result], seconds: float) -> Result:
        """Let time pass until the work is done. Raises AssertionError where it is not within these seconds."""
        task = asyncio.ensure_future(work)
        try:
            await self.let_pass_until(task.done, seconds)
        finally:
            task.cancel()
        return await task

    def _is_quiet(self) -> bool:
        return all(wire.lost.done() or not wire.pending or _find_client(wire) in held_back for wire in self._wires)


def _find_client(wire: Wire) -> tuple[str, int] | None:
    return None if wire._transport is None else wire._transport.get_extra_info("sockname")


@contextmanager
def noting_wires() -> Iterator[WeakSet[Wire]]:
    """Note each connection to Redis that this process makes."""
    wires: WeakSet[Wire] = WeakSet()
    make = Wire.__init__

    def note(wire: Wire, *rest: Any) -> None:
        make(wire, *rest)
        wires.add(wire)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Wire, "__init__", note)
        yield wires
