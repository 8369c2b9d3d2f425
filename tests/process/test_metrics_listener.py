"""The metrics listener alone: slow readers, and names that DNS rebinding could use."""

import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from service.serving.metrics_listener import MAX_READERS, answering_metrics
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

pytestmark = pytest.mark.clause("decided-metrics")


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def ask(listening: socket.socket, host: str = "127.0.0.1") -> int:
    connection = http.client.HTTPConnection("127.0.0.1", listening.getsockname()[1], timeout=MAX_WAIT_SECONDS)
    connection.request("GET", "/metrics", headers={"Host": host})
    status = connection.getresponse().status
    connection.close()
    return status


def test_slow_readers_delay_no_other_reader(listening: socket.socket) -> None:
    with answering_metrics([listening], "", request_seconds=3600), ExitStack() as silent:
        for _ in range(2 * MAX_READERS):
            peer = silent.enter_context(socket.create_connection(listening.getsockname(), MAX_WAIT_SECONDS))
            peer.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        assert ask(listening) == 200


def test_a_request_has_one_time_limit(listening: socket.socket) -> None:
    with (
        answering_metrics([listening], "", request_seconds=0.5),
        socket.create_connection(listening.getsockname(), MAX_WAIT_SECONDS) as peer,
    ):
        peer.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        peer.settimeout(0.05)

        def is_closed() -> bool:
            try:
                peer.sendall(b"a")
                peer.recv(1000)
            except TimeoutError:
                return False
            except OSError:
                return True
            return True

        wait_until(is_closed, "the end of a request that goes on")


@pytest.mark.parametrize(
    ("host", "status"), [("evil.example", 404), ("service.example:9100", 200), ("localhost:9100", 200)]
)
def test_a_foreign_name_on_loopback_is_refused(listening: socket.socket, host: str, status: int) -> None:
    with answering_metrics([listening], "service.example"):
        assert ask(listening, host) == status
