"""SIGTERM behind a load balancer: first not ready, then no new connections, then the end. No request is lost."""

import errno
import http.client
import signal
import socket
import threading
from contextlib import closing
from pathlib import Path

import pytest

from service.app import build_app
from service.serving.draining_server import DRAIN_SECONDS, MAX_DRAIN_SECONDS
from service.worker import Worker
from tests.conftest import MakeSettings, environment_of
from tests.serving.conftest import ANSWER, GET, SLOW, TICK_SECONDS, RunningServer, running_server
from tests.support.loop_time import LoopTime
from tests.support.servers import RedisServer, running_service
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

LAST = b"connection: close"


def ask(port: int, path: str) -> tuple[int, str | None] | None:
    """Send a request on a new connection. Returns status and Connection header, or None if the port is closed.

    A connection that the kernel completes while the port is being closed is reset.
    """
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=MAX_WAIT_SECONDS)) as connection:
        try:
            connection.request("GET", path)
            response = connection.getresponse()
        except (ConnectionRefusedError, ConnectionResetError):
            return None
        return response.status, response.headers["Connection"]


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.clause("decided-not-ready-before-the-end")
def test_sigterm_ends_readiness_before_service(tmp_path: Path, own_redis: RedisServer, workers: str) -> None:
    """The duration is proved by other tests, which hold the time."""
    environment = environment_of(own_redis, WEB_CONCURRENCY=workers, LOG_LEVEL="info")
    with running_service(tmp_path, environment) as service:
        service.process.send_signal(signal.SIGTERM)
        wait_until(
            lambda: service.log.read_text().count("shutting down: no longer ready") == int(workers),
            "all workers to drain",
        )

        while (answer := ask(service.port, "/readyz")) is not None:
            assert answer == (503, "close")
            assert ask(service.port, "/.well-known/oauth-authorization-server") in ((200, "close"), None)
        assert service.process.wait(MAX_WAIT_SECONDS) == 0
        assert service.status("/healthz") == 0


@pytest.mark.clause("decided-not-ready-before-the-end")
def test_an_ending_instance_serves_for_two_seconds(
    held_time: LoopTime, make_settings: MakeSettings, registry: None
) -> None:
    app = build_app(Worker(make_settings()))
    with running_server(app, drains=True, held_time=held_time, lifespan="on") as server:
        assert ask(server.port, "/readyz") == (200, None)
        kept = server.connect()
        kept.send(GET.replace(b"/ ", b"/healthz ", 1))
        assert LAST not in kept.read()
        server.uvicorn_server.handle_exit(signal.SIGTERM, None)
        server.advance(DRAIN_SECONDS - TICK_SECONDS)

        assert ask(server.port, "/readyz") == (503, "close")
        assert ask(server.port, "/.well-known/oauth-authorization-server") == (200, "close")
        kept.send(GET.replace(b"/ ", b"/healthz ", 1))
        answer = kept.read_all()
        assert answer.startswith(ANSWER)
        assert LAST in answer
        server.advance(1)
        assert ask(server.port, "/readyz") is None


@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]], ids=["ctrl-C", "twice"])
@pytest.mark.clause("decided-not-ready-before-the-end")
def test_ctrl_c_and_a_second_signal_do_not_wait_for_balancers(numbers: list[signal.Signals]) -> None:
    with running_server(drains=True) as server:
        server.uvicorn_server.drain_seconds = 3600
        peer = server.connect()
        peer.send(GET)
        assert peer.read().startswith(ANSWER)
        for number in numbers:
            server.uvicorn_server.handle_exit(number, None)
        assert peer.read_all() == b""


@pytest.mark.clause("decided-not-ready-before-the-end")
def test_an_answer_that_was_being_made_says_that_it_is_the_last(held_time: LoopTime) -> None:
    with running_server(drains=True, held_time=held_time) as server:
        peer = server.connect()
        peer.send(SLOW)
        wait_until(lambda: len(server.connections.tasks) == 1, "the request")
        end_listening(server)
        server.answer_slow()
        answer = peer.read_all()
        assert answer.startswith(ANSWER)
        assert LAST in answer


@pytest.mark.clause("decided-not-ready-before-the-end", "decided-idle-connections")
def test_a_long_keep_alive_does_not_delay_the_end(held_time: LoopTime) -> None:
    with running_server(drains=True, held_time=held_time, timeout_keep_alive=75) as server:
        peer = server.connect()
        peer.send(GET)
        assert peer.read().startswith(ANSWER)
        server.advance(70)
        server.uvicorn_server.handle_exit(signal.SIGTERM, None)
        server.advance(MAX_DRAIN_SECONDS - 1)
        assert server.is_open()
        server.advance(2)
        assert peer.read_all() == b""


@pytest.mark.clause("decided-not-ready-before-the-end")
def test_connections_in_the_accept_queue_are_answered() -> None:
    with running_server(drains=True) as server:
        server.uvicorn_server.drain_seconds = 0
        is_in_tick, may_go_on = threading.Event(), threading.Event()

        def hold() -> None:
            is_in_tick.set()
            may_go_on.wait()

        server.uvicorn_server.before_tick = hold
        assert is_in_tick.wait(MAX_WAIT_SECONDS)
        peers = [server.connect() for _ in range(20)]
        for peer in peers:
            peer.send(GET)
        server.uvicorn_server.handle_exit(signal.SIGTERM, None)
        may_go_on.set()
        assert [peer.read_all()[: len(ANSWER)] for peer in peers] == [ANSWER] * len(peers)


def end_listening(server: RunningServer) -> None:
    """Advance the time by the whole period in which the server listens after SIGTERM."""
    server.uvicorn_server.handle_exit(signal.SIGTERM, None)
    server.advance(DRAIN_SECONDS + 1)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", server.port)) == errno.ECONNREFUSED
