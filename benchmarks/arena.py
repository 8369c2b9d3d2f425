"""Where everything is measured: a Redis, services on it, and a supply of sessions that nobody has used yet."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from benchmarks.processes import LOAD_CORE, SERVER_CORE, on_core
from service.worker import Worker
from tests.faults.deployment import Deployment, Session, start_sessions, worker_on
from tests.support.clients_and_users import WEB_SHOP
from tests.support.servers import ServiceProcess, running_service

CLIENT = WEB_SHOP
"""It has a secret, as the peers' client has."""

_STARTED_AT_ONCE = 200
_users = itertools.count()


class Arena:
    """`name` tells the files of several arenas in one folder apart."""

    def __init__(self, folder: Path, name: str, *options: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        with on_core(LOAD_CORE):
            # A rewrite would fork in the middle of a round.
            self.deployment = Deployment(self.folder, "--auto-aof-rewrite-percentage", "0", *options)
        self.redis_pid = self.deployment.redis.process.pid
        self._files = itertools.count()

    @contextmanager
    def running(self, *, everywhere: bool = False, **variables: str) -> Iterator[ServiceProcess]:
        """The service, on the core of the servers, or on all."""
        with ExitStack() as stack:
            with nullcontext() if everywhere else on_core(SERVER_CORE):
                service = stack.enter_context(running_service(self.folder, self.deployment.environment(**variables)))
            yield service

    def start_sessions(self, count: int) -> list[Session]:
        """Each of another user, as a login would make it."""
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
        """The path of a file of its own."""
        path = self.folder / f"lines-{next(self._files)}"
        path.write_text("".join(f"{line}\n" for line in lines))
        return str(path)

    def close(self) -> None:
        self.deployment.close()


@contextmanager
def running_arena(folder: Path, name: str, *options: str) -> Iterator[Arena]:
    """Start an arena, and close it when the block ends."""
    arena = Arena(folder, name, *options)
    try:
        yield arena
    finally:
        arena.close()


async def start_users(worker: Worker, count: int) -> list[Session]:
    """As many new users, each with one session."""
    waiting = iter(range(count))
    sessions: list[Session] = []

    async def go_on() -> None:
        for _ in waiting:
            sessions.extend(await start_sessions(worker, f"user{next(_users)}@example.com", 1, CLIENT.client_id))

    await asyncio.gather(*(go_on() for _ in range(_STARTED_AT_ONCE)))
    return sessions
