"""Our server in a thread of this process, with an application of three lines, and a peer that speaks bytes to it."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from service.serving.connections import Connection, Connections
from service.serving.server import Server
from tests.waiting import wait_until

PATIENCE_SECONDS = 10
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK"


@dataclass
class Peer:
    """One connection; every wait has an end."""

    connection: socket.socket

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def read(self, size: int = 1 << 16) -> bytes:
        """What has come; empty where the server has closed or cut the connection."""
        try:
            return self.connection.recv(size)
        except ConnectionResetError:
            return b""

    def read_all(self) -> bytes:
        """Until the server closes."""
        return b"".join(iter(self.read, b""))

    def close(self) -> None:
        self.connection.close()


@dataclass
class Serving:
    server: Server
    port: int
    peers: list[Peer] = field(default_factory=list)

    @property
    def connections(self) -> Connections:
        state = self.server.server_state
        assert isinstance(state, Connections)
        return state

    def connect(self) -> Peer:
        self.peers.append(Peer(socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS)))
        return self.peers[-1]

    def is_open(self) -> bool:
        return bool(self.connections.connections)


Serve = Callable[..., Serving]


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """`/slow` takes a second, `/long` sends 4 MiB; no body is read."""
    body = b"x" * (1 << 22) if scope["path"] == "/long" else b"ok"
    if scope["path"] == "/slow":
        await asyncio.sleep(1)
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def running_server(app: ASGIApp = answer, *, lingers: bool = False, **options: Any) -> Iterator[Serving]:
    listening = socket.create_server(("127.0.0.1", 0))
    defaults: dict[str, Any] = {"lifespan": "off", "access_log": False, "log_config": None, "ws": "none"}
    configuration = uvicorn.Config(app, http=Connection, **(defaults | options))
    server = Server(configuration, lingers=lingers)
    thresholds = gc.get_threshold()
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    serving = Serving(server, listening.getsockname()[1])
    try:
        wait_until(lambda: server.started, "the server")
        yield serving
    finally:
        server.should_exit = server.force_exit = True
        for peer in serving.peers:
            peer.close()
        thread.join(PATIENCE_SECONDS)
        gc.unfreeze()
        gc.set_threshold(*thresholds)
    assert not thread.is_alive()


@pytest.fixture
def serving() -> Iterator[Serving]:
    with running_server() as serving:
        yield serving
