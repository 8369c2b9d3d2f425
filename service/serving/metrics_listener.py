"""The listener for /metrics at a separate address, and the folder in which workers share their metrics."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import Final

import uvicorn

from service.observability import metrics
from service.serving.connections import Connections, HttpConnection
from service.web.api.metrics import build_metrics_app

REQUEST_SECONDS: Final = 5.0
TICK_SECONDS: Final = 0.5
MAX_READERS: Final = 16


@contextlib.contextmanager
def sharing_numbers() -> Iterator[None]:
    """Create a private folder in which worker processes share their metrics, and export its path."""
    with tempfile.TemporaryDirectory(prefix="token-service-metrics-", ignore_cleanup_errors=True) as folder:
        os.environ[metrics.FOLDER] = folder
        yield


@contextlib.contextmanager
def answering_metrics(
    sockets: Sequence[socket.socket], base_host: str, *, request_seconds: float = REQUEST_SECONDS
) -> Iterator[None]:
    """Serve /metrics in a thread of this process, on sockets that already listen.

    A request must arrive within `request_seconds`. Of more than MAX_READERS connections the oldest is closed.
    """
    if not sockets:
        yield
        return
    if metrics.FOLDER not in os.environ:
        # The thread and the application could otherwise make metrics of this process at the same time, each its own.
        metrics.get_metrics()
    loop = asyncio.new_event_loop()
    serving = loop.create_task(_serve(sockets, base_host, request_seconds))
    thread = threading.Thread(target=_run, args=(loop, serving), daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join()


def _run(loop: asyncio.AbstractEventLoop, serving: asyncio.Task[None]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        loop.run_until_complete(serving)
    loop.close()


async def _serve(sockets: Sequence[socket.socket], base_host: str, request_seconds: float) -> None:
    application = build_metrics_app(base_host)
    configuration = uvicorn.Config(application, ws="none", lifespan="off", log_config=None, access_log=False)
    configuration.load()
    connections = Connections(MAX_READERS, head_seconds=request_seconds)
    loop = asyncio.get_running_loop()
    for listening in sockets:
        await loop.create_server(lambda: HttpConnection(configuration, connections, {}), sock=listening)
    while True:
        await asyncio.sleep(TICK_SECONDS)
        connections.close_expired(loop.time())
