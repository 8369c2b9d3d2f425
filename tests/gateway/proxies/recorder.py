"""An HTTP server that keeps what arrived, as it arrived: the API behind a gateway, or a service that misbehaves."""

from __future__ import annotations

import functools
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.servers import free_port


@dataclass(frozen=True)
class Arrived:
    """A request with the names of its headers and trailers as they were sent."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    trailers: list[str]
    connection: object = field(repr=False)

    def header(self, name: str) -> str | None:
        """The only value of a header; None where there is none."""
        values = [value for given, value in self.headers if given.lower() == name.lower()]
        assert len(values) <= 1, values
        return values[0] if values else None


@dataclass(frozen=True)
class Reply:
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


Answerer = Callable[[Arrived], Reply]


class Recorder:
    """Answers as `answer` says, which a test may exchange, and remembers every request in `arrived`."""

    def __init__(self, answer: Answerer) -> None:
        self.port = free_port()
        self.answer = answer
        self.arrived: list[Arrived] = []

    @contextmanager
    def running(self) -> Iterator[Recorder]:
        self._start()
        try:
            yield self
        finally:
            self._stop()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the server in the block: it has no listening socket and no connection."""
        self._stop()
        try:
            yield
        finally:
            self._start()

    def _start(self) -> None:
        self._server = _Server(("127.0.0.1", self.port), functools.partial(_Handler, self))
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def _stop(self) -> None:
        self._server.shutdown()
        self._server.end_connections()
        self._server.server_close()

    @contextmanager
    def answering(self, answer: Answerer) -> Iterator[None]:
        usual, self.answer = self.answer, answer
        try:
            yield
        finally:
            self.answer = usual


class _Server(ThreadingHTTPServer):
    """Closing it waits for the threads of its connections."""

    daemon_threads = False
    request_queue_size = 1024

    def __init__(self, address: tuple[str, int], handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__(address, handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A gateway that hangs up in the middle is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, recorder: Recorder, *connection: Any) -> None:
        self._recorder = recorder
        super().__init__(*connection)  # the handler answers all requests of the connection

    def handle_one_request(self) -> None:
        """Answer a request of any method. The standard library wants a method of ours for each HTTP method."""
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body, trailers = self._read_body()
        headers = list(self.headers.items())
        arrived = Arrived(self.command, self.path, headers, body, trailers, self.connection)
        self._recorder.arrived.append(arrived)
        reply = self._recorder.answer(arrived)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.status == HTTPStatus.SWITCHING_PROTOCOLS:
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def _read_body(self) -> tuple[bytes, list[str]]:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0))), []
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        return body, [line.decode().strip() for line in iter(self.rfile.readline, b"\r\n")]

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""
