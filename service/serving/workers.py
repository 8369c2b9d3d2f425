"""uvicorn's worker processes, with an end that is bounded and without endless attempts to start."""

from __future__ import annotations

import socket
import time
from collections import deque

import structlog
import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

__all__ = ["Workers"]

# So many new processes for each worker within the window: they do not die, they cannot start.
REPLACEMENTS = 5
REPLACEMENTS_WINDOW_SECONDS = 15

# After its last request a worker closes its connections to Redis.
CLOSING_SECONDS = 5

log = structlog.get_logger(__name__)


class Workers(Multiprocess):
    def __init__(self, configuration: uvicorn.Config, sockets: list[socket.socket]) -> None:
        super().__init__(configuration, sockets)
        self.failed = False
        self._replaced_at: deque[float] = deque(maxlen=REPLACEMENTS * configuration.workers)

    def keep_subprocess_alive(self) -> None:
        before = {process.pid for process in self.processes}
        super().keep_subprocess_alive()
        replaced = sum(process.pid not in before for process in self.processes)
        self._replaced_at.extend([time.monotonic()] * replaced)
        if any(process.exitcode == STARTUP_FAILURE for process in self.processes) or self._never_start():
            self.failed = True
            self.should_exit.set()

    def _never_start(self) -> bool:
        """Whether the workers are being replaced again and again; uvicorn by itself would go on for ever."""
        if len(self._replaced_at) < (self._replaced_at.maxlen or 0):
            return False
        if time.monotonic() - self._replaced_at[0] > REPLACEMENTS_WINDOW_SECONDS:
            return False
        log.error("the workers die again and again, ending the service")
        return True

    def terminate_all(self) -> None:
        # Ours is a copy of the socket that the workers are about to close: while it is open, new connections
        # would wait for an answer that nobody is going to give.
        for listening in self.sockets:
            listening.close()
        super().terminate_all()

    def join_all(self) -> None:
        deadline = time.monotonic() + (self.config.timeout_graceful_shutdown or 0) + CLOSING_SECONDS
        for process in self.processes:
            process.process.join(max(0.0, deadline - time.monotonic()))
            if process.process.is_alive():
                log.error("a worker does not end, killing it", pid=process.pid)
                process.process.kill()
                process.process.join()
