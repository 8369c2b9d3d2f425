"""Random bytes sent to a real instance: it answers or closes, never with a 500, and stays healthy."""

from __future__ import annotations

import json
import random
import re
import secrets
import select
import socket
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import httpx2
import pytest

from tests.conftest import environment_of
from tests.support.clients_and_users import ALICE, PHONE_APP, TOKEN, login_form
from tests.support.servers import RedisServer, running_service
from tests.support.waiting import MAX_WAIT_SECONDS

QUICK, LONG = 600, 20_000
AT_ONCE = 16
SILENCE_SECONDS = 0.15
"""The silence after which the test stops reading. Later output of a busy machine is only in the log."""

STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
# With many concurrent logins some get 503, since hashing a password takes time.
ALLOWED = {100, 200, 204, 302, 303, 400, 401, 403, 404, 405, 408, 413, 429, 431, 503}

METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "CONNECT", "TRACE", "PRI", "get", "G\0ET", "", "X" * 300)
PATHS = (
    *(TOKEN, "/oauth2/v1/revoke", "/oauth2/v1/revokeAll", "/oauth2/v1/introspect", "/oauth2/v1/verify"),
    *("/", "/authorization/", "/authorization/login", "/sessions/", "/healthz", "/metrics", "*", "http://here/healthz"),
    *("//", "/%00", "/%ff%fe", "/\x80", "/" + "a" * 9000, "http://[::1/", "?", "/oauth2/v1/token/../verify", "here:80"),
    *("/oauth2/v1/verify?scope=%ff", "/authorization/?client_id=%00&state=%f0", "/healthz#fragment", "/a b"),
)
VERSIONS = ("HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/1.1 ", "HTTP/9", "http/1.1", "", "HTTP/1.1\0")
HEADERS = (
    *(
        "Host: here",
        "Host: a\r\nHost: b",
        "Host:",
        "Content-Length: 5",
        "Content-Length: -1",
        "Content-Length: 99999999",
    ),
    *("Content-Length: 0x5", "Content-Length: 5\r\nContent-Length: 6", "Content-Length: 18446744073709551617"),
    *("Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding : chunked"),
    *("Transfer-Encoding: chunked\r\nContent-Length: 5", "Transfer-Encoding: identity", "Expect: 100-continue"),
    *("Expect: nothing", "Connection: close", "Connection: upgrade\r\nUpgrade: websocket", "Upgrade: h2c"),
    *("Content-Type: application/x-www-form-urlencoded", "Content-Type: \xff", "Authorization: Basic \xff\xfe"),
    *(
        "Authorization: Bearer " + "a" * 300,
        "Authorization: Basic OjpAOg==",
        "Authorization:",
        "Cookie: ts_session=\xff",
    ),
    *("X-Forwarded-For: \0", " folded: line", "A\0: b", "A: b\rc", "A: b\nc", ": empty", "Long: " + "x" * 70_000),
    *("Origin: null", "Origin: http://\xff", "Accept-Language: " + "en," * 500, "\x0b: \x0c"),
)
BODIES = (
    *(b"", b"grant_type=password", b"%", b"%zz=%ff", b"\0" * 50, b"a=" * 3000, b"x" * 70_000, b"\xff\xfe\xfd"),
    *(
        b"5\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello",
        b"ffffffffffffffff1\r\nx",
        b"-1\r\n\r\n",
        b"5;ext=\0\r\nhello\r\n0\r\n\r\n",
    ),
    *(b"0\r\nContent-Length: 4\r\n\r\n", b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"),
    urlencode(PHONE_APP.credentials | login_form(ALICE, "realm:main role:enduser")).encode(),
)


def make_request(rng: random.Random) -> bytes:
    """Return a random request, which is valid by chance only."""
    if rng.random() < 0.05:
        return rng.randbytes(rng.randrange(1, 2000))
    method = rng.choice(METHODS[:3]) if rng.random() < 0.7 else rng.choice(METHODS)
    path, version = rng.choice(PATHS), VERSIONS[0] if rng.random() < 0.8 else rng.choice(VERSIONS)
    headers = rng.choices(HEADERS, k=rng.randrange(6))
    if rng.random() < 0.8:
        headers.insert(0, HEADERS[0])
    body = rng.choice(BODIES)
    if rng.random() < 0.4:
        headers += [f"Content-Length: {len(body)}", "Content-Type: application/x-www-form-urlencoded"]
    head = "\r\n".join([f"{method} {path} {version}", *headers, "", ""])
    return mutate(rng, head.encode("latin-1") + body)


def mutate(rng: random.Random, request: bytes) -> bytes:
    kind = rng.random()
    if kind < 0.15:
        place = rng.randrange(len(request))
        return request[:place] + rng.randbytes(rng.randrange(1, 8)) + request[place:]
    if kind < 0.25:
        return request[: rng.randrange(len(request))]
    if kind < 0.35:
        return request.replace(b"\r\n", b"\n", rng.randrange(1, 5))
    if kind < 0.45:
        return request * rng.randrange(2, 40)
    return request


def send(port: int, requests: Sequence[bytes], rng: random.Random) -> bytes:
    """Return the response, read until the end or a silence. Sometimes the test closes the connection early."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), MAX_WAIT_SECONDS) as connection:
        try:
            for request in requests:
                place = rng.randrange(len(request) + 1) if rng.random() < 0.2 else len(request)
                connection.sendall(request[:place])
                connection.sendall(request[place:])
            if rng.random() < 0.1:
                return received
            if rng.random() < 0.3:
                connection.shutdown(socket.SHUT_WR)
            while select.select([connection], [], [], SILENCE_SECONDS)[0]:
                data = connection.recv(1 << 16)
                if not data:
                    break
                received += data
        except OSError:
            pass  # the instance closed first
    return received


def fuzz(port: int, seed: int, count: int) -> list[str]:
    """Return each response that is not allowed, with the bytes that caused it."""
    rng = random.Random(seed)
    offences = []
    for _ in range(count):
        requests = [make_request(rng) for _ in range(1 if rng.random() < 0.8 else rng.randrange(2, 4))]
        statuses = {int(status) for status in STATUS.findall(send(port, requests, rng))}
        if not statuses <= ALLOWED:
            offences.append(f"{sorted(statuses - ALLOWED)}: {[request[:2000] for request in requests]}")
    return offences


@pytest.mark.parametrize("count", [QUICK, pytest.param(LONG, marks=pytest.mark.long)])
@pytest.mark.clause("decided-malformed-request")
def test_no_bytes_make_it_fail_or_hang(
    tmp_path: Path, own_redis: RedisServer, count: int, record_property: Callable[[str, object], None]
) -> None:
    seed = secrets.randbelow(1 << 32)
    record_property("seed", seed)
    sys.stdout.write(f"seed {seed}\n")
    with running_service(tmp_path, environment_of(own_redis)) as service:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            rounds = [threads.submit(fuzz, service.port, seed + n, count // AT_ONCE) for n in range(AT_ONCE)]
            offences = [offence for done in rounds for offence in done.result()]
        assert offences == []

        assert service.status("/readyz") == 200
        response = httpx2.post(
            service.url + TOKEN,
            data=PHONE_APP.credentials | login_form(ALICE, "realm:main role:enduser"),
            timeout=MAX_WAIT_SECONDS,
        )
        assert response.status_code == 200
        assert service.process.poll() is None
        assert service.status("/healthz") == 200
        log = service.log.read_text()
    written = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    others = [line for line in log.splitlines() if not line.startswith("{")]
    assert [line for line in others if not line.startswith("curl ")] == []
    assert "Traceback" not in log
    assert [line for line in written if line["level"] in ("error", "critical")] == []
