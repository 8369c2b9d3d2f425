"""Instances of the service that can be killed, frozen, and started with a wrong clock."""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.support.servers import CHECKOUT, ServiceProcess, free_port, running_service, stop
from tests.support.waiting import wait_until

WRONG_CLOCK = CHECKOUT / "tests" / "invariants" / "wrong_clock"


class Instance:
    """An address of the service. Its processes change over time."""

    def __init__(self, number: int, folder: Path, environment: Mapping[str, str], workers: int) -> None:
        self.number = number
        self.workers = workers
        self.port = free_port()
        self.version = CHECKOUT
        self._folder = folder
        self._environment = {**environment, "WEB_CONCURRENCY": str(workers), "TMPDIR": str(folder)}
        self._running = ExitStack()
        self._service: ServiceProcess

    def start(self, *, ahead_seconds: float = 0) -> None:
        """Returns at once; see `wait`."""
        wrong = {"PYTHONPATH": str(WRONG_CLOCK), "WRONG_BY_SECONDS": str(ahead_seconds)} if ahead_seconds else {}
        environment = self._environment | wrong
        running = running_service(self._folder, environment, port=self.port, wait_for=None, cwd=self.version)
        self._service = self._running.enter_context(running)

    def wait(self) -> None:
        """Wait until the instance is ready with all its workers."""
        wait_until(lambda: self.is_ready() and len(self.worker_pids()) == self.workers, "an instance")

    def stop(self) -> None:
        for pid in self.worker_pids():
            _send(pid, signal.SIGCONT)
        self._running.close()

    def replace(self, version: Path) -> None:
        """End the instance as a service manager does, and start the program of another folder in its place."""
        stop(self._service.process)
        self._running.close()
        self.version = version
        self.start()
        self.wait()

    def kill(self) -> None:
        """Kill all processes of the instance, so that none finishes any work."""
        pids = self.worker_pids()
        stop(self._service.process, signal.SIGKILL)
        for pid in pids:
            _send(pid, signal.SIGKILL)
        wait_until(lambda: not any(_is_running(pid) for pid in pids), "the workers to be dead")
        self._running.close()

    def worker_pids(self) -> list[int]:
        """Return the processes that answer requests. An instance with one worker has only one process."""
        pid = self._service.process.pid
        if self.workers == 1:
            return [pid] if self._service.process.poll() is None else []
        return [child for child in _children(pid) if b"spawn_main" in _command_line(child)]

    def is_ready(self) -> bool:
        return self._service.status("/readyz") == 200

    def kill_worker(self, place: int) -> None:
        """Returns when another one has taken its place."""
        pid = self.worker_pids()[place]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self._has_replaced(pid), "another worker")

    def _has_replaced(self, pid: int) -> bool:
        pids = self.worker_pids()
        return pid not in pids and len(pids) == self.workers

    @contextmanager
    def frozen_worker(self, place: int) -> Iterator[None]:
        pid = self.worker_pids()[place]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            _send(pid, signal.SIGCONT)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _command_line(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _is_running(pid: int) -> bool:
    """Return True if the process runs. A zombie does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
