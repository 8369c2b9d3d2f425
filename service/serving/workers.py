"""uvicorn's worker processes, with draining, a time limit for their end and a limit of replacements."""

from __future__ import annotations

import functools
import math
import os
import signal
import socket
import time
from collections import deque
from multiprocessing import resource_tracker

import uvicorn
from uvicorn.supervisors import Multiprocess, multiprocess
from uvicorn.supervisors.multiprocess import Process

from service.observability import metrics
from service.observability.logs import EventLog
from service.serving.draining_server import MAX_DRAIN_SECONDS, DrainingServer
from service.system.interrupts import exit_at_interrupt
from service.system.process import configure_malloc

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
        self._kill_at = math.inf
        super().__init__(config, sockets)

    def start(self) -> None:
        """Start the process. SIGINT is blocked until `target`, as the interpreter's start would print a traceback."""
        resource_tracker.ensure_running()  # its start would unblock the signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        super().start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        """Run the server. SIGHUP is ignored: a whole process group gets it, and only the supervisor acts on it."""
        exit_at_interrupt()
        configure_malloc()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        super().target(sockets)

    @property
    def server(self) -> DrainingServer:
        if self._server is None:
            self._server = DrainingServer(self.config, drains=self._drains)
        assert isinstance(self._server, DrainingServer)
        return self._server

    def terminate(self) -> None:
        """End the worker without draining, since the other workers go on listening on the same socket."""
        self.end(signal.SIGINT)

    def end(self, number: int) -> None:
        """Send a signal that ends the worker. It may take as long as draining and a request; then `join` kills it."""
        if self.exitcode is None and self.pid is not None:
            os.kill(self.pid, number)
            graceful = self.config.timeout_graceful_shutdown or 0
            seconds = MAX_DRAIN_SECONDS + graceful + CLOSING_SECONDS
            self._kill_at = min(self._kill_at, time.monotonic() + seconds)

    def is_awaited(self) -> bool:
        return self.process.is_alive() and time.monotonic() < self._kill_at

    def join(self) -> None:
        while self.is_awaited():
            time.sleep(POLL_SECONDS)
        if self.process.is_alive():
            log.error("a worker does not end; killing it", pid=self.pid)
            self.process.kill()
        self.process.join()
        metrics.forget_worker(self.pid)


class Workers(Multiprocess):
    """uvicorn's supervisor of processes, with WorkerProcess as its process."""

    processes: list[WorkerProcess]  # type: ignore[assignment]

    def __init__(self, configuration: uvicorn.Config, sockets: list[socket.socket], drains: bool) -> None:
        super().__init__(configuration, sockets)
        # The supervisor of uvicorn has no parameter for the class of its processes.
        multiprocess.Process = functools.partial(WorkerProcess, drains=drains)  # type: ignore[assignment,misc]
        self.failed = False
        self._hurries = False
        self._replaced_at: deque[float] = deque(maxlen=REPLACEMENTS * configuration.workers)

    def keep_subprocess_alive(self) -> None:
        if self.should_exit.is_set():
            return
        before = self.processes.copy()
        super().keep_subprocess_alive()
        for old, new in zip(before, self.processes, strict=True):
            if new is not old:
                log.warning("a worker died and is being replaced", pid=old.pid)
                self._replaced_at.append(time.monotonic())
        if self.should_exit.is_set() or self._never_start():
            self.failed = True
            self.should_exit.set()

    def _never_start(self) -> bool:
        """Return True if workers are replaced again and again. uvicorn's own supervisor would never give up."""
        if len(self._replaced_at) < (self._replaced_at.maxlen or 0):
            return False
        if time.monotonic() - self._replaced_at[0] > REPLACEMENTS_WINDOW_SECONDS:
            return False
        log.error("workers keep dying; ending the service")
        return True

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
        for worker in self.processes:
            worker.end(signal.SIGTERM)

    def join_all(self) -> None:
        while any(worker.is_awaited() for worker in self.processes):
            time.sleep(POLL_SECONDS)
            self.handle_signals()
            if self._hurries:
                self._hurries = False
                for worker in self.processes:
                    worker.end(signal.SIGTERM)  # the second one, which cuts short the draining
        super().join_all()
