"""A uvicorn server with connection draining, so that its end behind a load balancer fails no request.

After SIGTERM the server is no longer ready, but serves for two seconds, since load balancers notice late or not at
all. Each response announces that it is the last of its connection. Then new connections are refused, and connections in
the accept queue are still served. Idle connections are left for their peers to close, since a peer may be about to send
a request. SIGINT, a second signal to a single worker, and a store that only this process serves cut the waiting short.
Requests in progress are still completed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType
from typing import Final

import uvicorn

from service.serving.connections import Connections
from service.serving.sockets import accept_all
from service.web.request.state import ENDING

DRAIN_SECONDS: Final = 2.0
"""Seconds of service after SIGTERM. A health check each second notices it, and later requests go elsewhere."""

MAX_DRAIN_SECONDS: Final = 5.0
"""Seconds after SIGTERM in which the peers may close their idle connections."""

LATE_EVERY_TICKS: Final = 10

MAX_FILES: Final = 65_536
FILES_BESIDE: Final = 256
"""File descriptors for Redis, identity providers and the process itself. The others are for callers' connections."""

NEW_OBJECTS: Final = 10_000
"""The number of additional objects that triggers a garbage collection. The interpreter's default is 700."""

log = logging.getLogger("service.serving.server")


def freeze_startup_objects() -> None:
    """Exclude all present objects from garbage collection, since they live as long as the worker.

    Untuned, the collector scans thousands of modules, classes and settings again and again. The tuning saves 5 to 8 %
    of the processor time, and the 99th percentile of a refresh fell from 57 to 18 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])


def raise_file_limit() -> None:
    """Raise the limit of open files to MAX_FILES, or as far as the system permits.

    The system's default is meant for programs that wait with `select`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _most_connections() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MAX_FILES if soft == resource.RLIM_INFINITY else soft
    return max(files - FILES_BESIDE, files // 2)


class DrainingServer(uvicorn.Server):
    """A uvicorn server with connection draining. Set `drains` if other instances serve the same store.

    `drain_seconds` is the time of service after SIGTERM.
    """

    def __init__(self, config: uvicorn.Config, *, drains: bool) -> None:
        super().__init__(config)
        self.drain_seconds = DRAIN_SECONDS
        self._connections = Connections(_most_connections(), idle_seconds=config.timeout_keep_alive)
        self.server_state = self._connections
        self._sockets: Iterable[socket.socket] = ()
        self._drains = drains
        self._draining_since: float | None = None
        self._listens = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGTERM and self._drains and self._draining_since is None:
            self._draining_since = time.monotonic()
            self._captured_signals.append(sig)
        else:
            super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._sockets = sockets or ()
        await super().startup(sockets)
        freeze_startup_objects()

    async def on_tick(self, counter: int) -> bool:
        if counter % LATE_EVERY_TICKS == 0:
            self._connections.close_expired(asyncio.get_running_loop().time())
        if self._draining_since is not None and not self.should_exit:
            self.should_exit = await self._is_drained(time.monotonic() - self._draining_since)
        return await super().on_tick(counter)

    async def _is_drained(self, seconds: float) -> bool:
        """Do the next step of draining, after so many seconds of it.

        Returns True if no idle connection is left, or MAX_DRAIN_SECONDS are over.

        An idle connection ends when its peer closes it, at its own time limit, or after one more request.
        """
        if ENDING not in self.lifespan.state:
            log.info("shutting down: no longer ready, serving for another %g s", self.drain_seconds)
            self._announce_end()
        if seconds < self.drain_seconds:
            return False
        if self._listens:
            await self._stop_listening()
        is_anyone_waiting = self._connections.idle or self._connections.awaiting_request
        return not is_anyone_waiting or seconds > max(self.drain_seconds, MAX_DRAIN_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._announce_end()
        await super().shutdown(sockets)
        if self.force_exit:  # a second SIGINT: uvicorn would cancel the application, with a traceback in the log
            await self.lifespan.shutdown()

    def _announce_end(self) -> None:
        self.lifespan.state[ENDING] = True
        self._connections.announce_end()

    async def _stop_listening(self) -> None:
        """Close the listening sockets, and serve the connections that are still in their accept queues."""
        self._listens = False
        listening = [listener for server in self.servers for listener in server.sockets]
        copies = [socket.socket(fileno=os.dup(listener.fileno())) for listener in listening]
        for server in self.servers:
            server.close()
        for given in self._sockets:
            given.close()
        await asyncio.sleep(0)  # uvloop closes the sockets in the next turn
        accepted = [connection for copy in copies for connection in accept_all(copy)]
        for copy in copies:
            copy.close()
        await asyncio.gather(*(self._serve_accepted(connection) for connection in accepted))

    async def _serve_accepted(self, connection: socket.socket) -> None:
        def create_protocol() -> asyncio.Protocol:
            return self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )

        loop = asyncio.get_running_loop()
        with suppress(OSError):
            await loop.connect_accepted_socket(create_protocol, connection, ssl=self.config.ssl)
