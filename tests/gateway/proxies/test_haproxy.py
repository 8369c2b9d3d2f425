"""HAProxy with HTTP/2, which its example leaves to the reader: streams that are reset, and WebSockets of browsers."""

import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from examples.gateway_requests import HANDSHAKE, PREFACE, Case
from tests.gateway.proxies.conftest import ProxyDeployment
from tests.gateway.proxies.gateways import Gateway, running_gateway
from tests.gateway.proxies.recorder import Reply
from tests.support.servers import free_port
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

pytestmark = pytest.mark.clause("decided-gateway-examples")

PER_SECOND = 200
STREAMS = 2 * PER_SECOND
THINGS = Case("GET /things")


@pytest.fixture
def h2_port() -> int:
    return free_port()


@pytest.fixture
def haproxy(tmp_path: Path, deployment: ProxyDeployment, h2_port: int) -> Iterator[Gateway]:
    """HAProxy with a port for HTTP/2. What it allows in a second, it allows in an hour."""
    bind = "    bind 127.0.0.1:8080\n"
    changes = {bind: f"{bind}    bind 127.0.0.1:{h2_port} proto h2\n", "gpc0_rate(1s)": "gpc0_rate(1h)"}
    changes["#ws: "] = ""
    ports = (deployment.stand_in.port, deployment.api.port)
    with running_gateway("haproxy", tmp_path, *ports, changes=changes) as gateway:
        deployment.api.arrived.clear()  # the wait for the gateway asks the API
        yield gateway


def status_for(address: str, port: int, path: str) -> int:
    with closing(HTTPConnection("127.0.0.1", port, MAX_WAIT_SECONDS, source_address=(address, 0))) as connection:
        connection.request("GET", path, headers={"Authorization": "Bearer a"})
        return connection.getresponse().status


def test_reset_streams_cause_few_verifications(haproxy: Gateway, h2_port: int, deployment: ProxyDeployment) -> None:
    """HAProxy holds each for 4 s, and so long a flood would hold up the requests of others."""
    numbers = range(1, 2 * STREAMS, 2)
    resets = (THINGS.as_stream(number, "a") + b"\0\0\4\3\0" + number.to_bytes(4) + b"\0\0\0\x08" for number in numbers)
    with socket.create_connection(("127.0.0.1", h2_port)) as connection:
        connection.sendall(PREFACE + b"\0\0\0\4\0\0\0\0\0" + b"".join(resets))
        wait_until(lambda: len(deployment.stand_in.arrived) >= PER_SECOND, "the verifications")

        assert status_for("127.0.0.1", haproxy.port, "/things") == 429
        assert status_for("127.0.0.1", haproxy.port, "/public/x") == 200
        assert len(deployment.stand_in.arrived) == PER_SECOND
        assert status_for("127.0.0.2", haproxy.port, "/things") == 200


def test_refused_requests_do_not_count(tmp_path: Path, deployment: ProxyDeployment) -> None:
    """Otherwise an address that asks for more than its share, such as a company's, would get nothing."""
    ports, limit = (deployment.stand_in.port, deployment.api.port), {"ge 200": "ge 1"}
    with running_gateway("haproxy", tmp_path, *ports, changes=limit) as gateway:
        for status in (200, 429, 200):
            wait_until(lambda status=status: status_for("127.0.0.1", gateway.port, "/things") == status, str(status))


def test_websocket_over_http2_becomes_one_of_http1(haproxy: Gateway, h2_port: int, deployment: ProxyDeployment) -> None:
    """HAProxy offers it to browsers, which then open it by an extended CONNECT. The example refuses other CONNECTs."""
    accepted = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Accept": "any"}
    case = Case("CONNECT /things", (":protocol: websocket", *HANDSHAKE), b"x")
    with (
        deployment.api.answering(lambda _: Reply(101, accepted)),
        socket.create_connection(("127.0.0.1", h2_port), MAX_WAIT_SECONDS) as connection,
    ):
        connection.sendall(case.as_http2("a")[:-10])  # without the frame of the body, which ends the stream
        wait_until(lambda: deployment.api.arrived, "the WebSocket")
    (arrived,) = deployment.api.arrived
    assert (arrived.method, arrived.target, arrived.header("upgrade")) == ("GET", "/things", "websocket")
