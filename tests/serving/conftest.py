"""Fixtures: our server in a thread of this process, with a small application, and a raw connection to it."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from service.serving.connections import Connections, HttpConnection
from service.serving.draining_server import DrainingServer
from tests.support.loop_time import LoopTime
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
SLOW = GET.replace(b"/ ", b"/slow ", 1)
ANSWER = b"HTTP/1.1 200 OK"
TICK_SECONDS = 0.1
"""The interval at which the server checks its connections."""


@dataclass
class Peer:
    """A raw connection to the server. Every read has a time limit."""

    connection: socket.socket

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def read(self, size: int = 1 << 16) -> bytes:
        """Return the received bytes, or none if the server has closed or reset the connection."""
        try:
            return self.connection.recv(size)
        except ConnectionResetError:
            return b""

    def read_all(self) -> bytes:
        """Read until the server closes the connection."""
        return b"".join(iter(self.read, b""))

    def close(self) -> None:
        self.connection.close()


class WatchedConnections(Connections):
    """Connections that count the bytes that were read."""

    received_bytes = 0


class WatchedConnection(HttpConnection):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        assert isinstance(self.server_state, WatchedConnections)
        self.server_state.received_bytes += len(data)


class WatchedServer(DrainingServer):
    """A server that counts its checks of connections."""

    def __init__(self, configuration: uvicorn.Config, *, drains: bool) -> None:
        super().__init__(configuration, drains=drains)
        self._connections = self.server_state = WatchedConnections(
            self._connections.most, idle_seconds=self._connections.idle_seconds
        )
        self.ticks = 0
        self.ends = False
        self.before_tick: Callable[[], object] = lambda: None
        self.ticked = threading.Condition()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        self.before_tick()
        self.ends = await super().on_tick(counter)
        with self.ticked:
            self.ticks += 1
            self.ticked.notify_all()
        return self.ends


@dataclass
class RunningServer:
    uvicorn_server: WatchedServer
    port: int
    application: Application
    held_time: LoopTime | None
    peers: list[Peer] = field(default_factory=list)

    @property
    def connections(self) -> WatchedConnections:
        state = self.uvicorn_server.server_state
        assert isinstance(state, WatchedConnections)
        return state

    def connect(self) -> Peer:
        self.peers.append(Peer(socket.create_connection(("127.0.0.1", self.port), MAX_WAIT_SECONDS)))
        return self.peers[-1]

    def is_open(self) -> bool:
        return bool(self.connections.connections)

    def advance(self, seconds: float) -> None:
        """Advance the held time from one check of connections to the next, until the server ends."""
        assert self.held_time is not None
        uvicorn_server = self.uvicorn_server
        for _ in range(round(seconds / TICK_SECONDS)):
            if uvicorn_server.ends:
                return
            with uvicorn_server.ticked:
                awaited = uvicorn_server.ticks + 1
                # The callback runs in the thread of the loop, which sleeps for one tick whenever it runs callbacks.
                uvicorn_server.loop.call_soon_threadsafe(self.held_time.advance, TICK_SECONDS)
                assert uvicorn_server.ticked.wait_for(lambda: uvicorn_server.ticks >= awaited, MAX_WAIT_SECONDS)  # noqa: B023

    def await_received(self, count: int) -> None:
        """Wait until the server has read so many bytes, on all connections together."""
        wait_until(lambda: self.connections.received_bytes >= count, f"{count} bytes to be read")

    def answer_slow(self) -> None:
        """Release the response to one request for `/slow`."""
        self.application.may_answer.release()


class Application:
    """An ASGI application that reads no body. `/slow` waits for the test, and `/long` has a body of 4 MiB."""

    def __init__(self) -> None:
        self.may_answer = threading.Semaphore(0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b"x" * (1 << 22) if scope["path"] == "/long" else b"ok"
        if scope["path"] == "/slow":
            await asyncio.to_thread(self.may_answer.acquire)
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@contextmanager
def running_server(
    app: ASGIApp | None = None, *, drains: bool = False, held_time: LoopTime | None = None, **options: Any
) -> Iterator[RunningServer]:
    """Run the server with this application, by default with `Application`.

    With `held_time` its event loop uses that time.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    usual = Application()
    defaults: dict[str, Any] = {"lifespan": "off", "access_log": False, "log_config": None, "ws": "none"}
    defaults["http"] = WatchedConnection
    if held_time is not None:
        defaults["loop"] = "asyncio"
    uvicorn_server = WatchedServer(uvicorn.Config(app or usual, **(defaults | options)), drains=drains)
    server = RunningServer(uvicorn_server, listening.getsockname()[1], usual, held_time)
    thresholds = gc.get_threshold()
    thread = threading.Thread(target=uvicorn_server.run, args=([listening],))
    thread.start()

    def has_ended() -> bool:
        if held_time is not None:
            held_time.advance(TICK_SECONDS)
            with suppress(RuntimeError):  # the event loop has ended
                uvicorn_server.loop.call_soon_threadsafe(lambda: None)
        return not thread.is_alive()

    try:
        wait_until(lambda: uvicorn_server.started and uvicorn_server.ticks, "the start of the server")
        yield server
    finally:
        uvicorn_server.should_exit = uvicorn_server.force_exit = True
        usual.may_answer.release(1000)
        for peer in server.peers:
            peer.close()
        wait_until(has_ended, "the end of the server")
        gc.unfreeze()
        gc.set_threshold(*thresholds)


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server
