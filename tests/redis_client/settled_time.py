"""Time that passes in steps, each of them when all that was asked until then is answered."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakSet

import pytest

from service.redis_client import connection as connection_module
from service.redis_client.connection import Connection
from tests.redis_client.scripted_redis import held_back
from tests.support.loop_time import LoopTime
from tests.support.waiting import run_loop_once, until

STEP_SECONDS = 0.05
QUIET_TURNS = 2
"""The turns without traffic that count as rest. The operating system may hand over data late."""

Result = TypeVar("Result")


class Traffic:
    """The connections to Redis that this process has made or is making."""

    def __init__(self) -> None:
        self.connections: WeakSet[Connection] = WeakSet()
        self.connecting = 0

    def is_quiet(self) -> bool:
        """Return True if each connection is made, and each command answered unless its server holds that back."""
        return not self.connecting and all(map(_is_quiet, self.connections))


class SettledTime:
    """The held time, moved without a guess at how long the machine takes for an answer."""

    def __init__(self, held_time: LoopTime, traffic: Traffic) -> None:
        self._held_time = held_time
        self._traffic = traffic

    def read(self) -> float:
        """Return the time in seconds."""
        return self._held_time.read()

    async def settle(self) -> None:
        """Wait until nothing more happens without a move of the time."""
        turns = 0
        while turns < QUIET_TURNS:
            await run_loop_once()
            turns += 1
            if not self._is_quiet():
                await until(self._is_quiet, "an answer to each command, and the end of what follows from it")
                turns = 0

    async def let_pass(self, seconds: float, *, step: float = STEP_SECONDS) -> None:
        """Move the time by so many seconds, and settle after each step."""
        await self.settle()
        end = self.read() + seconds
        while (left := end - self.read()) > 0:
            self._held_time.advance(min(step, left))
            await self.settle()

    async def let_pass_until(self, is_so: Callable[[], object], seconds: float, *, step: float = STEP_SECONDS) -> None:
        """Move the time until the condition is true, at most by these seconds. Raises AssertionError if it is not true
        then.

        After these seconds the time stands still until the condition is true.
        """
        await self.settle()
        end = self.read() + seconds
        while not is_so() and (left := end - self.read()) > 0:
            self._held_time.advance(min(step, left))
            await self.settle()
        await until(is_so, f"what is to be so within {seconds:g} s of the held time")

    async def run(self, work: Awaitable[Result], seconds: float) -> Result:
        """Let time pass until the work is done, at most these seconds. Raises AssertionError if it is not done then."""
        task = asyncio.ensure_future(work)
        try:
            await self.let_pass_until(task.done, seconds)
        finally:
            task.cancel()
        return await task

    def _is_quiet(self) -> bool:
        """Return True if no task but the calling one can run."""
        ready: Any = vars(asyncio.get_running_loop())["_ready"]
        return not ready and self._traffic.is_quiet()


def _is_quiet(connection: Connection) -> bool:
    return connection.lost.done() or not connection.pending or _find_client(connection) in held_back


def _find_client(connection: Connection) -> tuple[str, int] | None:
    return None if connection._transport is None else connection._transport.get_extra_info("sockname")


@contextmanager
def recording_traffic() -> Iterator[Traffic]:
    """Note each connection to Redis that this process makes."""
    traffic = Traffic()
    make, connect = Connection.__init__, connection_module._connect_to

    def note(connection: Connection, *rest: Any) -> None:
        make(connection, *rest)
        traffic.connections.add(connection)

    async def note_connecting(*rest: Any) -> Connection:
        traffic.connecting += 1
        try:
            return await connect(*rest)
        finally:
            traffic.connecting -= 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "__init__", note)
        patch.setattr(connection_module, "_connect_to", note_connecting)
        yield traffic
