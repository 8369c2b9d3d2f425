"""deployment/nginx.conf before instances of the service that are made up here, and go away."""

from __future__ import annotations

import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from deployment.stack import (
    Stack,
    find_nginx,
    make_folder,
    nginx_command,
    running,
    write_certificate,
    write_nginx_configuration,
)
from tests.cast import REVOKE
from tests.servers import free_port, wait_until

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Instance:
    """Counts what it is sent, and then answers or hangs up."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            with connection:
                request = connection.recv(1 << 16)
                if not request:
                    return
                self.requests.append(request)
                connection.sendall(self.answer)

    def stop(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port)):
            pass
        self._thread.join()
        self._listening.close()


@contextmanager
def running_nginx(folder: Path, *ports: int) -> Iterator[httpx2.Client]:
    """With instances on these ports, which it asks in this order."""
    stack = Stack(folder, free_port(), free_port(), free_port(), free_port())
    make_folder(folder)
    write_certificate(stack)
    write_nginx_configuration(stack)
    lines = (f"server 127.0.0.1:{port} fail_timeout=1s;\n" for port in ports)
    (folder / "instances.conf").write_text("".join(lines))
    trust = ssl.create_default_context(cafile=str(stack.certificate))
    with running("nginx", nginx_command(find_nginx(), stack), {}, signal.SIGQUIT, 20) as nginx:
        with httpx2.Client(base_url=stack.url, verify=trust) as client:
            wait_until(lambda: _is_up(client), "nginx")
            yield client
        nginx.check()


def _is_up(client: httpx2.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 404
    except httpx2.TransportError:
        return False


@pytest.fixture
def answering() -> Iterator[Instance]:
    instance = Instance(ANSWER)
    yield instance
    instance.stop()


@pytest.fixture
def hanging_up() -> Iterator[Instance]:
    """It dies after it has read the request, and may have done all of it."""
    instance = Instance(b"")
    yield instance
    instance.stop()


@pytest.mark.clause("decided-shipped-proxy-repeats-no-post")
def test_an_instance_that_restarts_costs_no_request(tmp_path: Path, answering: Instance) -> None:
    with running_nginx(tmp_path, free_port(), answering.port) as client:
        assert [client.post(REVOKE, data={"token": "x"}).status_code for _ in range(6)] == [200] * 6
    assert len(answering.requests) == 6


@pytest.mark.clause("decided-shipped-proxy-repeats-no-post")
def test_a_post_that_was_sent_is_not_sent_again(tmp_path: Path, hanging_up: Instance, answering: Instance) -> None:
    with running_nginx(tmp_path, hanging_up.port, answering.port) as client:
        assert client.post(REVOKE, data={"token": "x"}).status_code == 503
    assert (len(hanging_up.requests), len(answering.requests)) == (1, 0)


def test_where_no_instance_is_left_clients_are_told_to_come_again(tmp_path: Path) -> None:
    with running_nginx(tmp_path, free_port()) as client:
        answer = client.post(REVOKE, data={"token": "x"})
    assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")
    assert answer.headers["Retry-After"] == "1"
    assert "no-store" in answer.headers["Cache-Control"]


def test_one_address_that_sends_slowly_does_not_keep_the_others_out(tmp_path: Path, answering: Instance) -> None:
    with running_nginx(tmp_path, answering.port) as client, ExitStack() as slow:
        trust = ssl.create_default_context(cafile=str(tmp_path / "tls" / "certificate.pem"))
        head = f"POST {REVOKE} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n".encode()
        for _ in range(200):
            plain = socket.create_connection(("127.0.0.1", client.base_url.port), source_address=("127.0.0.2", 0))
            connection = slow.enter_context(trust.wrap_socket(plain, server_hostname="localhost"))
            connection.sendall(head)
        transport = httpx2.HTTPTransport(verify=trust, local_address="127.0.0.2")
        with httpx2.Client(base_url=client.base_url, transport=transport) as same_address:
            wait_until(lambda: same_address.post(REVOKE, data={"token": "x"}).status_code == 503, "the limit")
        assert client.post(REVOKE, data={"token": "x"}).status_code == 200


@pytest.mark.clause("decided-shipped-proxy")
def test_an_instance_is_sent_only_what_nginx_says_of_the_caller(tmp_path: Path, answering: Instance) -> None:
    forged = {
        "X-Forwarded-For": "203.0.113.9",
        "X-Forwarded-Proto": "http",
        "X-Forwarded-Host": "203.0.113.9",
        "X-Forwarded-Port": "203",
        "X-Real-IP": "203.0.113.9",
        "Forwarded": "for=203.0.113.9",
        "Upgrade": "h2c",
        "Connection": "upgrade",
    }
    with running_nginx(tmp_path, answering.port) as client:
        client.post(REVOKE, data={"token": "x"}, headers=forged)
    head = answering.requests[0].partition(b"\r\n\r\n")[0].decode().lower().splitlines()
    assert {"x-forwarded-for: 127.0.0.1", "x-forwarded-proto: https", "host: localhost"} <= set(head)
    assert not [line for line in head if "203" in line or line.startswith(("upgrade", "connection", "forwarded"))]
