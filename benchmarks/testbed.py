"""The testbed of a measurement: a Redis server, services that use it, and new sessions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

from benchmarks.processes import LOAD_CORE, SERVER_CORE, on_core
from service.worker import Worker
from tests.faults.deployment import Deployment, Session, start_sessions, worker_on
from tests.support.clients_and_users import WEB_SHOP
from tests.support.servers import ServiceProcess, running_service

CLIENT = WEB_SHOP
"""The client of all measured requests. It has a secret, like the client of the peers."""

AT_ONCE = 200

_users = itertools.count()

Item = TypeVar("Item")


class Testbed:
    """A Redis server on the core of the load, and the files of one measurement.

    The files are in a subfolder `name` of `folder`.
    """

    def __init__(self, folder: Path, name: str, *options: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        with on_core(LOAD_CORE):
            # Rewrites of the append-only file are off, since Redis would fork during a round.
            self.deployment = Deployment(self.folder, "--auto-aof-rewrite-percentage", "0", *options)
        self.redis_pid = self.deployment.redis.process.pid
        self._files = itertools.count()

    @contextmanager
    def running(self, *, on_all_cores: bool = False, **variables: str) -> Iterator[ServiceProcess]:
        """Start the service on the core of the servers, or on all cores."""
        with ExitStack() as stack:
            with nullcontext() if on_all_cores else on_core(SERVER_CORE):
                service = stack.enter_context(running_service(self.folder, self.deployment.environment(**variables)))
            yield service

    def start_sessions(self, count: int) -> list[Session]:
        """Start sessions as a login does, each for a new user."""
        return asyncio.run(self._start_sessions(count))

    def start_sessions_of(self, username: str, count: int) -> list[Session]:
        """Start sessions of one user."""
        return asyncio.run(self._start_sessions_of(username, count))

    async def _start_sessions_of(self, username: str, count: int) -> list[Session]:
        async with worker_on(self.deployment) as worker:
            return await start_sessions(worker, username, count, CLIENT.client_id)

    async def _start_sessions(self, count: int) -> list[Session]:
        async with worker_on(self.deployment) as worker:
            return await start_users(worker, count)

    def write_lines(self, lines: Iterable[str]) -> str:
        """Write the lines to a new file and return its path."""
        path = self.folder / f"lines-{next(self._files)}"
        path.write_text("".join(f"{line}\n" for line in lines))
        return str(path)

    def close(self) -> None:
        self.deployment.close()


@contextmanager
def running_testbed(folder: Path, name: str, *options: str) -> Iterator[Testbed]:
    """Start a testbed, and close it when the block ends."""
    testbed = Testbed(folder, name, *options)
    try:
        yield testbed
    finally:
        testbed.close()


async def start_users(worker: Worker, count: int) -> list[Session]:
    """Start one session for each of `count` new users."""
    sessions: list[Session] = []

    async def start_next(_: int) -> None:
        sessions.extend(await start_sessions(worker, f"user{next(_users)}@example.com", 1, CLIENT.client_id))

    await run_concurrently(range(count), start_next)
    return sessions


async def run_concurrently(
    items: Iterable[Item], work: Callable[[Item], Awaitable[object]], *, at_once: int = AT_ONCE
) -> None:
    """Call `work` with each item. At most `at_once` calls run at the same time."""
    remaining = iter(items)

    async def take_items() -> None:
        for item in remaining:
            await work(item)

    await asyncio.gather(*(take_items() for _ in range(at_once)))
