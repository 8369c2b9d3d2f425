"""uvicorn's worker processes, with draining and a time limit for their end."""

from __future__ import annotations

import functools
import logging
import os
import signal
import socket
import sys
import time
from multiprocessing import resource_tracker

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess, multiprocess
from uvicorn.supervisors.multiprocess import Process

from service.observability import metrics
from service.observability.logs import EventLog
from service.serving.draining_server import MAX_DRAIN_SECONDS, DrainingServer
from service.system.interrupts import exit_at_interrupt
from service.system.process import configure_malloc

# Time for a worker to close its connections to Redis after its last request.
CLOSING_SECONDS = 5

log = EventLog("service.serving.workers")


class WorkerProcess(Process):
    """A worker process that runs DrainingServer instead of uvicorn's server."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], drains: bool) -> None:
        self._drains = drains
        self._kill_at: float | None = None
        super().__init__(config, sockets)

    def start(self) -> None:
        """Start the process. SIGINT is blocked until `target`, as the interpreter's start would print a traceback."""
        resource_tracker.ensure_running()  # starting the tracker later would unblock SIGINT
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        super().start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        """Run the server. SIGHUP is ignored: a whole process group gets it, and only the supervisor acts on it.

        An error before the server has started exits with a status at which the supervisor ends. Any other status makes
        it replace the worker.
        """
        exit_at_interrupt()
        configure_malloc()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            super().target(sockets)
        except Exception:
            if self.server.started:
                raise
            logging.exception("a worker cannot start")
            sys.exit(STARTUP_FAILURE)

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
            self._kill_at = time.monotonic() + MAX_DRAIN_SECONDS + graceful + CLOSING_SECONDS

    def join(self) -> None:
        self.process.join(None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic()))
        if self.process.is_alive():
            log.error("a worker did not stop in time; killing it", pid=self.pid)
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

    @property
    def failed(self) -> bool:
        """True if the supervisor ended because a worker could not start."""
        return any(worker.exitcode == STARTUP_FAILURE for worker in self.processes)

    def terminate_all(self) -> None:
        # This process has copies of the listening sockets that the workers are about to close. While a copy is open,
        # new connections would be queued and never answered.
        for listening in self.sockets:
            listening.close()
        for worker in self.processes:
            worker.end(signal.SIGTERM)
