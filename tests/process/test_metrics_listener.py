"""The metrics listener alone: what idle connections can do to it."""

from __future__ import annotations

import socket
import urllib.request

from service.serving.metrics_listener import MAX_READERS, answering_metrics
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until


def is_answered(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=MAX_WAIT_SECONDS) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_who_connects_and_says_nothing_takes_no_more_threads_than_there_is_room_for() -> None:
    # No time limit ends the idle connections.
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        answering_metrics([listening], read_timeout_seconds=3600),
    ):
        port = listening.getsockname()[1]
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(MAX_READERS)]
        with socket.create_connection(("127.0.0.1", port), timeout=MAX_WAIT_SECONDS) as one_too_many:
            assert one_too_many.recv(1) == b""
        for each in silent:
            each.close()
        wait_until(lambda: is_answered(port), "the metrics")
