"""The listener for /metrics at a separate address, and the folder in which workers share their metrics."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from service.observability import metrics

PATH: Final = "/metrics"
READ_TIMEOUT_SECONDS: Final = 5
POLL_SECONDS: Final = 0.1
MAX_READERS: Final = 16
PREFIX: Final = "token-service-metrics-"

log = logging.getLogger("service.serving.metrics")


@contextlib.contextmanager
def sharing_numbers() -> Iterator[None]:
    """Create the private folder in which worker processes share their metrics, and name it in the environment.

    The folder is removed at the end. A folder that a killed service left behind is removed at the next start.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        _remove_if_left(left)
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as folder:
        held = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(held, fcntl.LOCK_SH)
        os.environ[metrics.FOLDER] = folder
        try:
            yield
        finally:
            os.close(held)


def _remove_if_left(folder: Path) -> None:
    """Remove the folder if this user owns it, workers have used it, and no running service holds its lock."""
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(opened).st_uid == os.geteuid() and any(folder.glob("*.lock")):
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
        finally:
            os.close(opened)


@contextlib.contextmanager
def answering_metrics(
    sockets: Sequence[socket.socket], *, read_timeout_seconds: float = READ_TIMEOUT_SECONDS
) -> Iterator[None]:
    """Serve /metrics in threads of this process, on sockets that already listen."""
    if sockets and metrics.FOLDER not in os.environ:
        # A thread and the application could otherwise make the metrics of this process at the same time, each its own.
        metrics.get_metrics()
    servers = [_Server(listening, read_timeout_seconds) for listening in sockets]
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True).start()
    try:
        yield
    finally:
        for server in servers:
            server.shutdown()


class _Server(ThreadingHTTPServer):
    """An HTTP server with at most MAX_READERS connections at once. It closes any further connection.

    The supervisor, in whose process it runs, must not run out of threads.
    """

    daemon_threads = True

    def __init__(self, listening: socket.socket, read_timeout_seconds: float) -> None:
        self.read_timeout_seconds = read_timeout_seconds
        self._room = threading.Semaphore(MAX_READERS)
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a reader of the metrics went away", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.read_timeout_seconds)

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self._answer(HTTPStatus.OK, metrics.render(), metrics.CONTENT_TYPE)

    def do_HEAD(self) -> None:
        self.do_GET()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send the status without a body. The library's page would repeat the request, its head name the program."""
        status = HTTPStatus(code)
        # The library reports a method without a handler as NOT_IMPLEMENTED.
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED if status == HTTPStatus.NOT_IMPLEMENTED else status, b"")

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str = "text/plain") -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)
