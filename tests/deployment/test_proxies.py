"""deployment/nginx.conf and haproxy.cfg in front of simulated instances that fail."""

import itertools
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

import httpx2
import pytest

from tests.deployment.proxies import running_haproxy, running_nginx
from tests.support.clients_and_users import REVOKE
from tests.support.servers import free_port
from tests.support.user_paths import NAME, USER_PATHS
from tests.support.waiting import wait_until

before_instances = pytest.mark.parametrize("running_proxy", [running_nginx, running_haproxy], ids=["nginx", "haproxy"])
RunningProxy = Callable[..., AbstractContextManager[httpx2.Client]]

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class SimulatedInstance:
    """A simulated instance, which counts its requests and then answers or hangs up."""

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
            request = connection.recv(1 << 16)
            if request.startswith(b"GET /readyz "):
                # HAProxy's health checks are not counted as requests.
                with connection:
                    connection.sendall(ANSWER)
                continue
            with connection:
                if not request:
                    return
                self.requests.append(request)
                connection.sendall(self.answer)

    def stop(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port)):
            pass
        self._thread.join()
        self._listening.close()


@pytest.fixture
def answering_instance() -> Iterator[SimulatedInstance]:
    instance = SimulatedInstance(ANSWER)
    yield instance
    instance.stop()


@pytest.fixture
def dying_instance() -> Iterator[SimulatedInstance]:
    """An instance that dies after it has read a request, and may have executed it."""
    instance = SimulatedInstance(b"")
    yield instance
    instance.stop()


@before_instances
@pytest.mark.clause("decided-shipped-proxy-repeats-no-post")
def test_an_instance_that_restarts_costs_no_request(
    running_proxy: RunningProxy, tmp_path: Path, answering_instance: SimulatedInstance
) -> None:
    with running_proxy(tmp_path, free_port(), answering_instance.port) as client:
        assert [client.post(REVOKE, data={"token": "x"}).status_code for _ in range(6)] == [200] * 6
    assert len(answering_instance.requests) == 6


@before_instances
@pytest.mark.clause("decided-shipped-proxy-repeats-no-post")
def test_a_post_that_was_sent_is_not_sent_again(
    running_proxy: RunningProxy,
    tmp_path: Path,
    dying_instance: SimulatedInstance,
    answering_instance: SimulatedInstance,
) -> None:
    # On a kept connection HAProxy closes without a response, so the client cannot know either.
    with (
        running_proxy(tmp_path, dying_instance.port, answering_instance.port) as client,
        suppress(httpx2.RemoteProtocolError),
    ):
        assert client.post(REVOKE, data={"token": "x"}).status_code == 503
    assert (len(dying_instance.requests), len(answering_instance.requests)) == (1, 0)


@before_instances
def test_proxy_without_instances_answers_503(running_proxy: RunningProxy, tmp_path: Path) -> None:
    with running_proxy(tmp_path, free_port()) as client:
        response = client.post(REVOKE, data={"token": "x"})
    assert (response.status_code, response.json()["error"]) == (503, "temporarily_unavailable")
    assert response.headers["Retry-After"] == "1"
    assert "no-store" in response.headers["Cache-Control"]


@before_instances
@pytest.mark.clause("decided-shipped-proxy")
def test_proxy_logs_no_user_name(
    running_proxy: RunningProxy,
    tmp_path: Path,
    answering_instance: SimulatedInstance,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with running_proxy(tmp_path, answering_instance.port) as client:
        (configuration,) = [*tmp_path.glob("nginx.conf"), *tmp_path.glob("haproxy.cfg")]
        without_tls = re.findall(r"(?:bind|listen) (127.*?) ?(?:default_server;)?\n", configuration.read_text())[0]
        for path in (*USER_PATHS, f"{REVOKE}/users-of/%61"):
            assert httpx2.get(f"http://{without_tls}{path}?x={NAME}").status_code == 301
            client.get(f"{path}?x={NAME}")
    log = capfd.readouterr().err
    if (tmp_path / "access.log").exists():
        log = (tmp_path / "access.log").read_text()
    paths = [json.loads(line)["path"] for line in log.splitlines() if line.startswith('{"time"')]

    assert NAME not in log
    assert paths[-2 * len(USER_PATHS) - 2 :][:2] == ["/oauth2/v1/users/{username}"] * 2
    assert paths[-2:] == [f"{REVOKE}/users-of/%61"] * 2


# nginx takes this header for the address of the caller, so that a test may choose it.
FROM_HEADER = "    set_real_ip_from 127.0.0.1;\n    real_ip_header X-Caller;\n"


@pytest.mark.parametrize(("slow", "same"), [("192.0.2.1", "192.0.2.1"), ("2001:db8:0:7:{:x}::", "2001:db8:0:7::5:6")])
def test_slow_sender_does_not_block_other_addresses(
    tmp_path: Path, answering_instance: SimulatedInstance, slow: str, same: str
) -> None:
    """An IPv6 network of 64 bits is one address."""
    with (
        running_nginx(tmp_path, answering_instance.port, http_lines=FROM_HEADER) as client,
        ExitStack() as slow_connections,
    ):
        trust = ssl.create_default_context(cafile=str(tmp_path / "tls" / "certificate.pem"))
        callers = map(slow.format, itertools.count(1))

        def connect_slowly() -> None:
            plain = socket.create_connection(("127.0.0.1", client.base_url.port))
            connection = slow_connections.enter_context(trust.wrap_socket(plain, server_hostname="localhost"))
            head = (
                f"POST {REVOKE} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nX-Caller: {next(callers)}\r\n\r\n"
            )
            connection.sendall(head.encode())

        def status_for(caller: str) -> int:
            return client.post(REVOKE, data={"token": "x"}, headers={"X-Caller": caller}).status_code

        def is_refused() -> bool:
            connect_slowly()
            return status_for(same) == 503

        for _ in range(200):
            connect_slowly()
        wait_until(is_refused, "the limit to be reached")
        for other in ("192.0.2.2", "2001:db8:0:1::1", "::ffff:192.0.2.3", "2001:db8:0:8::"):
            assert status_for(other) == 200


@before_instances
@pytest.mark.clause("decided-shipped-proxy")
def test_proxy_replaces_the_callers_forwarded_headers(
    running_proxy: RunningProxy, tmp_path: Path, answering_instance: SimulatedInstance
) -> None:
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
    with running_proxy(tmp_path, answering_instance.port) as client:
        client.post(REVOKE, data={"token": "x"}, headers=forged)
    head = answering_instance.requests[0].partition(b"\r\n\r\n")[0].decode().lower().splitlines()
    assert {"x-forwarded-for: 127.0.0.1", "x-forwarded-proto: https"} <= set(head)
    (host,) = [line for line in head if line.startswith("host: localhost")]
    head.remove(host)  # a port may contain any digits
    assert not [line for line in head if "203" in line or line.startswith(("upgrade", "connection", "forwarded"))]
