"""The memory that an unauthenticated connection can occupy in a worker: 4 MiB, and less for an incomplete request."""

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import environment_of
from tests.support.clients_and_users import TOKEN, VERIFY
from tests.support.hostile_requests import CHUNKED, FORM, FORM_TYPE, READ, fill, get, make_variables, post
from tests.support.servers import RedisServer, ServiceProcess, running_service
from tests.support.waiting import MAX_WAIT_SECONDS

CONNECTIONS = 20
HALF_MOST_KIB = 512
"""A connection took about 20 KiB when measured, and 2.8 MiB before the number of headers was limited."""

HALVES = {
    "half a head of tiny headers": get("/", *["a:b"] * 26_000)[:-2],
    "half a head of many headers": get("/", *["a:b"] * 250, f"X: {fill('a', 70_000)}")[:-2],
    "half a head": get("/", *["a:b"] * 250)[:-2],
    "an address and half a head": get(f"/?{fill('a')}")[:-2],
    "half a form": post(TOKEN, fill("a", FORM - 1))[:-1],
    "half a body past its limit": get(VERIFY, "Content-Length: 1000000", method="POST") + b"a" * 900_000,
    "a chunked form without end": get(TOKEN, FORM_TYPE, CHUNKED, method="POST") + b"f0000\r\n" + b"a" * FORM,
    "trailers without end": get(VERIFY, CHUNKED, method="POST") + b"0\r\n" + b"a:b\r\n" * 250,
    "a trailer without end": get(VERIFY, CHUNKED, method="POST") + b"0\r\na:" + b"b" * READ,
    "forms in line": post(TOKEN, fill("a", FORM - 1)) * 16,
    "pages in line": get("/sessions/", f"X: {fill('a')}") * 16,
}


@pytest.fixture
def service(tmp_path: Path, own_redis: RedisServer) -> Iterator[ServiceProcess]:
    with running_service(tmp_path, environment_of(own_redis, **make_variables())) as service:
        yield service


def read_peak_kib(service: ServiceProcess) -> int:
    """Return the peak memory since `forget_peak`."""
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    (peak,) = re.findall(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(peak)


def forget_peak(service: ServiceProcess) -> int:
    Path(f"/proc/{service.process.pid}/clear_refs").write_text("5")
    return read_peak_kib(service)


@pytest.mark.clause("decided-one-request-is-bounded")
def test_incomplete_request_uses_half_a_mebibyte_at_most(service: ServiceProcess) -> None:
    grown: dict[str, float] = {}
    for name, half in HALVES.items():
        before = forget_peak(service)
        peers = [socket.create_connection(("127.0.0.1", service.port), MAX_WAIT_SECONDS) for _ in range(CONNECTIONS)]
        for peer in peers:
            with suppress(ConnectionError):  # the service may refuse before the end
                peer.sendall(half)
        assert service.status("/healthz") == 200
        grown[name] = (read_peak_kib(service) - before) / CONNECTIONS
        for peer in peers:
            peer.close()

    assert {name: kib for name, kib in grown.items() if kib > HALF_MOST_KIB} == {}
