"""SIGTERM where a balancer is in front: not ready any more, then nobody new, then the end, and no request is lost."""

from __future__ import annotations

import http.client
import signal
import socket
import threading
from contextlib import closing
from pathlib import Path

import pytest

from service.serving import server as serving_server
from tests.conftest import environment_of
from tests.servers import RedisServer, ServiceProcess, running_service
from tests.serving.conftest import ANSWER, GET, running_server
from tests.waiting import wait_until

LAST = b"connection: close"


def ask(service: ServiceProcess, path: str) -> tuple[int, str | None, bytes]:
    """Over a connection of its own: the status, the header Connection, the body."""
    with closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=10)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Connection"], answer.read()


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.clause("decided-not-ready-before-the-end")
def test_after_sigterm_an_instance_is_not_ready_but_serves_on_for_a_while(
    tmp_path: Path, own_redis: RedisServer, workers: str
) -> None:
    environment = environment_of(own_redis, WEB_CONCURRENCY=workers, LOG_LEVEL="info")
    with running_service(tmp_path, environment) as service:
        kept = http.client.HTTPConnection("127.0.0.1", service.port, timeout=10)
        kept.request("GET", "/healthz")
        assert kept.getresponse().read() == b'{"status":"alive"}'
        service.process.send_signal(signal.SIGTERM)
        wait_until(lambda: service.log.read_text().count("ending: not ready") == int(workers), "its last seconds")

        status, connection, body = ask(service, "/readyz")
        assert (status, connection, body) == (503, "close", b'{"status":"this instance is about to end"}')
        assert ask(service, "/.well-known/oauth-authorization-server")[:2] == (200, "close")
        kept.request("GET", "/healthz")
        last = kept.getresponse()
        assert (last.status, last.headers["Connection"]) == (200, "close")
        kept.close()
        assert service.process.wait(20) == 0
        assert service.status("/healthz") == 0


@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]], ids=["ctrl-C", "twice"])
@pytest.mark.clause("decided-not-ready-before-the-end")
def test_ctrl_c_and_a_second_signal_do_not_wait_for_balancers(
    numbers: list[signal.Signals], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_server, "LINGER_SECONDS", 3600)
    with running_server(lingers=True) as serving:
        peer = serving.connect()
        peer.send(GET)
        assert peer.read().startswith(ANSWER)
        for number in numbers:
            serving.server.handle_exit(number, None)
        assert peer.read_all() == b""


@pytest.mark.clause("decided-not-ready-before-the-end")
def test_an_idle_connection_has_its_last_request_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_server, "LINGER_SECONDS", 0.1)
    with running_server(lingers=True) as serving:
        peer = serving.connect()
        peer.send(GET)
        assert LAST not in peer.read()
        serving.server.handle_exit(signal.SIGTERM, None)
        wait_until(lambda: not is_listening(serving.port), "nobody to listen")
        peer.send(GET)
        answer = peer.read_all()
        assert answer.startswith(ANSWER)
        assert LAST in answer


@pytest.mark.clause("decided-not-ready-before-the-end")
def test_an_answer_that_was_being_made_says_that_it_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_server, "LINGER_SECONDS", 0.1)
    with running_server(lingers=True) as serving:
        peer = serving.connect()
        peer.send(GET.replace(b"/ ", b"/slow ", 1))
        wait_until(lambda: len(serving.connections.tasks) == 1, "the request")
        serving.server.handle_exit(signal.SIGTERM, None)
        answer = peer.read_all()
        assert answer.startswith(ANSWER)
        assert LAST in answer


@pytest.mark.clause("decided-not-ready-before-the-end")
def test_whoever_connected_in_time_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come as fast as they can until nobody listens any more; then they are refused, and never cut off."""
    monkeypatch.setattr(serving_server, "LINGER_SECONDS", 0.1)
    cut_off: list[str] = []
    answered: list[str] = []

    def come(port: int) -> None:
        while True:
            try:
                connection = socket.create_connection(("127.0.0.1", port), 10)
            except ConnectionRefusedError:
                return
            with connection:
                try:
                    connection.sendall(GET)
                    answer = connection.recv(1000)
                except OSError as error:
                    cut_off.append(repr(error))
                    continue
            (answered if answer.startswith(ANSWER) else cut_off).append(repr(answer))

    with running_server(lingers=True) as serving:
        threads = [threading.Thread(target=come, args=(serving.port,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        serving.server.handle_exit(signal.SIGTERM, None)
        for thread in threads:
            thread.join()
    assert cut_off == []
    assert answered


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
