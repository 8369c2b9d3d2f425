"""An API behind any example gateway receives only what was judged, however it reads a request."""

import functools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest

from examples.gateway_requests import CASES, UPGRADES, Case
from examples.try_gateway import RecordingAPI, faults_of, send_http1, send_http2
from tests.gateway.proxies.conftest import ProxyDeployment
from tests.gateway.proxies.gateways import COMMANDS, UNLIMITED, WITH_WEBSOCKETS, Gateway, running_gateway
from tests.gateway.proxies.recorder import Reply
from tests.support.servers import CHECKOUT, free_port
from tests.support.waiting import MAX_WAIT_SECONDS

pytestmark = pytest.mark.clause("decided-gateway-one-reading")

StartGateway = Callable[..., Gateway]
# Traefik cannot see whether a request has a body, so its example has no lines for WebSockets.
SWITCHED_ON = tuple(name for name in COMMANDS if name != "traefik")
# These forward the caller's spelling of a path. The others normalize it.
REFUSES = ("nginx", "haproxy", "caddy")
SPEAK_HTTP2 = ("caddy", "traefik")
OTHERS = [case for case in CASES if case not in UPGRADES]
# Stock nginx can delete headers by their whole names only.
KEEPS_UNKNOWN_NAMES = ("nginx",)


@pytest.fixture(scope="module")
def api() -> Iterator[RecordingAPI]:
    with RecordingAPI(free_port()).running() as api:
        yield api


@pytest.fixture(scope="module")
def h2c_api() -> Iterator[RecordingAPI]:
    with RecordingAPI(free_port(), takes_h2c=True).running() as api:
        yield api


@pytest.fixture(scope="module")
def start_gateway(deployment: ProxyDeployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartGateway]:
    """Return a function that starts a gateway before an API. A gateway that runs is used again."""
    with ExitStack() as running:

        @functools.cache
        def start(name: str, api_port: int, *, websocket: bool = False) -> Gateway:
            folder = tmp_path_factory.mktemp(name)
            ports = (deployment.service.port, api_port)
            changes = WITH_WEBSOCKETS if websocket else UNLIMITED
            return running.enter_context(running_gateway(name, folder, *ports, changes=changes))

        yield start


def faults_at(api: RecordingAPI, gateway: Gateway, *, websocket: bool = False) -> list[str]:
    return [
        f"{received}: {fault}"
        for received in api.received
        for fault in faults_of(received, websocket=websocket)
        if not (gateway.name in KEEPS_UNKNOWN_NAMES and fault == "X-Auth-Foo comes from the caller")
    ]


def find_faults(cases: Sequence[Case], judge: Callable[[Case], Iterator[str]]) -> list[str]:
    """Return each fault of each request, as a line."""
    return [f"{case}: {fault}" for case in cases for fault in judge(case)]


def with_upper_escapes(target: str) -> str:
    """Traefik writes the digits of an escape in upper case."""
    return re.sub("%[0-9a-f]{2}", lambda escape: escape[0].upper(), target)


def offers_websocket(case: Case, name: str) -> bool:
    headers = [header.lower().split(":", 1) for header in case.headers if ":" in header]
    offered = [value.strip() for header, value in headers if header == "upgrade"]
    # nginx before 1.23 reads the first of several headers.
    return (offered[:1] if name == "nginx" else offered) == ["websocket"]


def test_api_receives_the_judged_request(
    api: RecordingAPI, start_gateway: StartGateway, name: str, enduser: str, partner: str
) -> None:
    gateway = start_gateway(name, api.port)

    def judge(case: Case) -> Iterator[str]:
        for token in (None, enduser):
            api.received.clear()
            status = send_http1(gateway.port, case.as_http1(token))
            yield from faults_at(api, gateway)
            if case.ambiguous and case.request_line[1] in [received.target for received in api.received]:
                yield "an ambiguous target is forwarded"
            # Caddy escapes "#" and forwards it.
            if case.ambiguous and status != 400 and name in REFUSES and len(api.received) < 2:
                yield f"an ambiguous target gets {status}"
        if case.passes:
            api.received.clear()
            send_http1(gateway.port, case.as_http1(partner))
            method, target, _ = case.request_line
            received = [(one.method, with_upper_escapes(one.target)) for one in api.received]
            if received != [(method, with_upper_escapes(target)), ("GET", "/public/last")]:
                yield f"a legal request arrives as {received}"

    assert find_faults(CASES, judge) == []


@pytest.mark.parametrize("name", SPEAK_HTTP2, indirect=True)
def test_http2_without_tls_gets_the_same_decisions(
    api: RecordingAPI, start_gateway: StartGateway, name: str, enduser: str
) -> None:
    def judge(case: Case) -> Iterator[str]:
        for websocket in {False, name in SWITCHED_ON}:
            gateway = start_gateway(name, api.port, websocket=websocket)
            for token in (None, enduser):
                api.received.clear()
                send_http2(gateway.port, case.as_http2(token))
                yield from faults_at(api, gateway, websocket=websocket)

    assert find_faults(CASES, judge) == []


@pytest.mark.clause("decided-gateway-no-upgrade")
@pytest.mark.parametrize("cases", [UPGRADES, pytest.param(OTHERS, marks=pytest.mark.long)], ids=["upgrades", "others"])
@pytest.mark.parametrize("name", SWITCHED_ON, indirect=True)
def test_gateway_with_websockets_makes_the_same_decisions(
    api: RecordingAPI, start_gateway: StartGateway, name: str, enduser: str, cases: Sequence[Case]
) -> None:
    gateway = start_gateway(name, api.port, websocket=True)

    def judge(case: Case) -> Iterator[str]:
        for token in (None, enduser):
            api.received.clear()
            send_http1(gateway.port, case.as_http1(token))
            yield from faults_at(api, gateway, websocket=True)
            if any(one.values_of("upgrade") for one in api.received) and not offers_websocket(case, name):
                yield "it is no WebSocket"

    assert find_faults(cases, judge) == []


@pytest.mark.clause("decided-gateway-no-upgrade")
def test_no_caller_opens_a_tunnel_to_an_api_that_takes_h2c(
    h2c_api: RecordingAPI, start_gateway: StartGateway, name: str
) -> None:
    def judge(case: Case) -> Iterator[str]:
        for websocket in {False, name in SWITCHED_ON}:
            gateway = start_gateway(name, h2c_api.port, websocket=websocket)
            h2c_api.received.clear()
            send_http1(gateway.port, case.as_http1(None))
            yield from faults_at(h2c_api, gateway, websocket=websocket)

    assert find_faults(UPGRADES, judge) == []


@pytest.mark.clause("decided-gateway-no-upgrade")
@pytest.mark.parametrize("name", SWITCHED_ON, indirect=True)
def test_a_websocket_is_opened_with_a_token_only(
    deployment: ProxyDeployment, start_gateway: StartGateway, name: str, enduser: str
) -> None:
    gateway = start_gateway(name, deployment.api.port, websocket=True)
    deployment.api.arrived.clear()
    handshake = [
        ("Connection", "Upgrade, X-Auth-User"),
        ("Upgrade", "WebSocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ]
    opened = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",  # belongs to that key
    }

    with deployment.api.answering(lambda _: Reply(101, opened)):
        assert gateway.get("/things", headers=handshake).status == 401
        assert not deployment.api.arrived
        assert gateway.get("/things", enduser, handshake).status == 101

    (arrived,) = deployment.api.arrived
    assert arrived.header("upgrade") == "websocket"
    assert (arrived.header("connection") or "").lower() == "upgrade"
    assert arrived.header("x-auth-user") == "alice@example.com"


@pytest.mark.parametrize("name", ["nginx"], indirect=True)
def test_example_command_prints_the_received_request(start_gateway: StartGateway, name: str, enduser: str) -> None:
    with RecordingAPI(free_port()).running() as api:
        gateway = start_gateway(name, api.port)
    command = [sys.executable, "-m", "examples.try_gateway", "--token", enduser]
    ports = ["--gateway", str(gateway.port), "--api", str(api.port)]

    told = subprocess.run([*command, *ports], cwd=CHECKOUT, capture_output=True, text=True, timeout=MAX_WAIT_SECONDS)

    wrong = [line for line in told.stdout.splitlines() if "WRONG" in line]
    assert (told.returncode, told.stderr) == (1, "")
    assert wrong
    assert all("WRONG; X-Auth-Foo comes from the caller GET" in line for line in wrong)
    assert "    ok GET /public/%20x" in told.stdout
