"""Random bytes sent to the server: it answers or closes, never with a 500, and serves on."""

import random
import re
import secrets
import select
import socket
from collections.abc import Callable
from contextlib import suppress

import pytest

from service.app import build_app
from service.worker import Worker
from tests.conftest import MakeSettings
from tests.serving.conftest import running_server
from tests.support.clients_and_users import TOKEN
from tests.support.waiting import MAX_WAIT_SECONDS

QUICK, LONG = 300, 10_000
SILENCE_SECONDS = 0.02
"""The silence after which the test stops reading."""

STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
ALLOWED = {100, 200, 204, 302, 303, 400, 401, 403, 404, 405, 408, 413, 415, 429, 431, 501, 503}

METHODS = ("GET", "POST", "HEAD", "OPTIONS", "CONNECT", "PRI", "get", "G\0ET", "", "X" * 300)
PATHS = (
    *(TOKEN, "/oauth2/v1/verify?scope=%ff", "/authorization/?client_id=%00&state=%f0", "/sessions/", "/metrics", "*"),
    *("//", "/%00", "/\x80", "/" + "a" * 9000, "http://[::1/", "?", "/oauth2/v1/token/../verify", "here:80", "/a b"),
)
VERSIONS = ("HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/9", "http/1.1", "", "HTTP/1.1\0")
HEADERS = (
    *("Host: a\r\nHost: b", "Content-Length: 5", "Content-Length: -1", "Content-Length: 5\r\nContent-Length: 6"),
    *("Content-Length: 18446744073709551617", "Transfer-Encoding: chunked", "Transfer-Encoding : chunked"),
    *("Transfer-Encoding: chunked\r\nContent-Length: 5", "Expect: 100-continue", "Connection: upgrade\r\nUpgrade: h2c"),
    *("Content-Type: application/x-www-form-urlencoded", "Content-Type: \xff", "Authorization: Basic \xff\xfe"),
    *("Authorization: Bearer " + "a" * 300, "Cookie: ts_session=\xff", "X-Forwarded-For: \0", " folded: line"),
    *("A\0: b", "A: b\rc", "A: b\nc", ": empty", "Long: " + "x" * 70_000, "Origin: http://\xff"),
)
BODIES = (b"", b"grant_type=password", b"%zz=%ff", b"\0" * 50, b"x" * 70_000, b"5\r\nhello\r\n0\r\n\r\n", b"-1\r\n\r\n")


def make_request(rng: random.Random) -> bytes:
    """Return a random request, which is valid by chance only."""
    line = f"{rng.choice(METHODS)} {rng.choice(PATHS)} {rng.choice(VERSIONS)}"
    headers = ["Host: here", *rng.choices(HEADERS, k=rng.randrange(4))]
    request = "\r\n".join([line, *headers, "", ""]).encode("latin-1") + rng.choice(BODIES)
    place = rng.randrange(len(request))
    changed = (request[:place] + rng.randbytes(4) + request[place:], request[:place], request.replace(b"\r\n", b"\n"))
    return rng.choice((request, request, request * rng.randrange(1, 40), *changed))


def send(port: int, request: bytes) -> bytes:
    """Return the response, read until the end or a silence."""
    received = b""
    # The server may close first.
    with socket.create_connection(("127.0.0.1", port), MAX_WAIT_SECONDS) as connection, suppress(OSError):
        connection.sendall(request)
        while select.select([connection], [], [], SILENCE_SECONDS)[0] and (data := connection.recv(1 << 16)):
            received += data
    return received


@pytest.mark.parametrize("count", [QUICK, pytest.param(LONG, marks=pytest.mark.long)])
@pytest.mark.single_server("the bytes never reach Redis")
@pytest.mark.clause("decided-malformed-request")
def test_random_bytes_never_crash_or_hang_the_server(
    make_settings: MakeSettings,
    registry: None,
    caplog: pytest.LogCaptureFixture,
    record_property: Callable[[str, object], None],
    count: int,
) -> None:
    seed = secrets.randbelow(1 << 32)
    record_property("seed", seed)
    rng = random.Random(seed)
    with running_server(build_app(Worker(make_settings())), lifespan="on") as server:
        for _ in range(count):
            request = make_request(rng)
            statuses = {int(status) for status in STATUS.findall(send(server.port, request))}
            assert statuses <= ALLOWED, (seed, request[:2000])
        assert STATUS.match(send(server.port, b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"))
        assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []
