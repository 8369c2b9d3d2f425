"""uvicorn's worker processes, with a time limit for their end and a limit of attempts to start."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from service.observability.logs import EventLog
from service.serving.draining_server import DRAIN_SECONDS, DrainingServer
from service.system.malloc import configure_malloc

# After so many replacements for each worker within the window, the workers are considered unable to start.
REPLACEMENTS = 5
REPLACEMENTS_WINDOW_SECONDS = 15

# Time for a worker to close its connections to Redis after its last request.
CLOSING_SECONDS = 5
POLL_SECONDS = 0.05

log = EventLog("service.serving.workers")


class WorkerProcess(Process):
    """A worker process that runs DrainingServer instead of uvicorn's server."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], drains: bool) -> None:
        self._drains = drains
        super().__init__(config, sockets)

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        """Run the server. SIGHUP is ignored: a whole process group gets it, and only the supervisor acts on it."""
        configure_malloc()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        super().target(sockets)

    @property
    def server(self) -> DrainingServer:
        if self._server is None:
            self._server = DrainingServer(self.config, drains=self._drains)
        assert isinstance(self._server, DrainingServer)
        return self._server

    def send_signal(self, number: int) -> None:
        if self.exitcode is None and self.pid is not None:
            os.kill(self.pid, number)


class Workers(Multiprocess):
    """uvicorn's supervisor of processes, with WorkerProcess as its process."""

    processes: list[WorkerProcess]  # type: ignore[assignment]

    def __init__(self, configuration: uvicorn.Config, sockets: list[socket.socket], drains: bool) -> None:
        super().__init__(configuration, sockets)
        self.failed = False
        self._drains = drains
        self._hurries = False
        self._replaced_at: deque[float] = deque(maxlen=REPLACEMENTS * configuration.workers)

    def init_processes(self) -> None:
        for _ in range(self.processes_num):
            self.processes.append(self._start_worker())

    def _start_worker(self) -> WorkerProcess:
        worker = WorkerProcess(self.config, self.sockets, self._drains)
        worker.start()
        return worker

    def keep_subprocess_alive(self) -> None:
        for index, worker in enumerate(self.processes):
            if self.should_exit.is_set():
                return
            if worker.is_alive(self.config.timeout_worker_healthcheck):
                continue
            worker.kill()
            worker.join()
            if worker.exitcode == STARTUP_FAILURE or self._never_start():
                self.failed = True
                self.should_exit.set()
                return
            log.warning("a worker died and is replaced", pid=worker.pid)
            self.processes[index] = self._start_worker()
            self._replaced_at.append(time.monotonic())

    def _never_start(self) -> bool:
        """Return True if workers are replaced again and again. uvicorn's own supervisor would never give up."""
        if len(self._replaced_at) < (self._replaced_at.maxlen or 0):
            return False
        if time.monotonic() - self._replaced_at[0] > REPLACEMENTS_WINDOW_SECONDS:
            return False
        log.error("the workers die again and again, ending the service")
        return True

    def restart_all(self) -> None:
        """Replace all workers on SIGHUP. Each new worker is ready before the old one ends."""
        for index, old in enumerate(self.processes):
            new = self._start_worker()
            if not new.wait_until_ready(self.config.timeout_worker_healthcheck, self.should_exit):
                log.error("a new worker was not ready in time, the old ones stay", pid=new.pid)
                new.kill()
                new.join()
                return
            self.processes[index] = new
            # No draining, unlike at the end of the service: the other workers go on listening on the same socket.
            old.send_signal(signal.SIGINT)
            self._await_end([old])

    def handle_ttin(self) -> None:
        self.processes_num += 1
        self.processes.append(self._start_worker())

    def handle_int(self) -> None:
        self._hurries = True
        super().handle_int()

    def handle_term(self) -> None:
        self._hurries = self.should_exit.is_set()
        super().handle_term()

    def terminate_all(self) -> None:
        # This process has copies of the listening sockets that the workers are about to close. While a copy is open,
        # new connections would be queued and never answered.
        for listening in self.sockets:
            listening.close()
        super().terminate_all()

    def join_all(self) -> None:
        self._await_end(self.processes, self._hear_hurry)

    def _hear_hurry(self) -> None:
        self.handle_signals()
        if self._hurries:
            self._hurries = False
            for worker in self.processes:
                worker.send_signal(signal.SIGTERM)  # the second one, which cuts short the draining

    def _await_end(self, workers: Sequence[WorkerProcess], meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait until the workers have ended. Kills a worker that takes longer than draining and a request may."""
        graceful = self.config.timeout_graceful_shutdown or 0
        deadline = time.monotonic() + max(DRAIN_SECONDS, self.config.timeout_keep_alive) + graceful + CLOSING_SECONDS
        while any(worker.process.is_alive() for worker in workers) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            meanwhile()
        for worker in workers:
            if worker.process.is_alive():
                log.error("a worker does not end, killing it", pid=worker.pid)
                worker.process.kill()
                worker.process.join()
