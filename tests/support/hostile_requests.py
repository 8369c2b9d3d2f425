"""Requests that cost the service as much as one request can, for the tests and a benchmark."""

from __future__ import annotations

import socket
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, urlencode

from tests.support.browser import BROWSER_COOKIE, DEVICE_COOKIE
from tests.support.clients_and_users import PHONE_APP, PHONE_CALLBACK, TOKEN, VERIFY
from tests.support.waiting import MAX_WAIT_SECONDS

SIZE = 60_000
FORM = 64 * 1024
READ = 256 * 1024
"""The most that one read of the server brings."""

FORM_TYPE = "Content-Type: application/x-www-form-urlencoded"
CHUNKED = "Transfer-Encoding: chunked"
AUTHORIZATION = "/authorization/"
AUTHORIZATION_QUERY = urlencode(
    {"response_type": "code", "client_id": PHONE_APP.client_id, "redirect_uri": PHONE_CALLBACK}
)
COMBINING = "\u0300\u0323"
"""Characters that take quadratic time to normalize, because they must be sorted."""


_UNLIMITED = {
    f"TOKEN_SERVICE_{name}": "1000000/minute"
    for name in (
        "CLIENT_ATTEMPTS", "LOGIN_ATTEMPTS", "LOGIN_ATTEMPTS_PER_USER", "LOGIN_ATTEMPTS_PER_ADDRESS",
        "PAGES_PER_ADDRESS",
    )
}  # fmt: skip


class Answer(NamedTuple):
    """The status of an answer, or 0 if there is none, and its head."""

    status: int
    head: bytes = b""

    @property
    def is_throttled(self) -> bool:
        """Return True if a redirect tells the client to try again later. It has the status of any other redirect."""
        return b"error=temporarily_unavailable" in self.head


@dataclass(frozen=True)
class HostileRequest:
    """The bytes for one connection, and the expected status of the first answer, 0 for no answer.

    Several statuses are possible, because the service may see a part of the bytes first. `answers` is the number of
    requests in `data`.
    """

    name: str
    data: bytes
    statuses: frozenset[int]
    answers: int = 1

    @classmethod
    def of(cls, name: str, data: bytes, *statuses: int, answers: int = 1) -> HostileRequest:
        return cls(name, data, frozenset(statuses), answers)

    def is_expected(self, answer: Answer) -> bool:
        """Return True if the service did the work of this request and did not refuse it because of a limit."""
        return answer.status in self.statuses and not answer.is_throttled


def make_variables() -> dict[str, str]:
    """Return settings without limits of attempts, which would hide the cost of a request."""
    return {"TOKEN_SERVICE_TRUSTED_PROXIES": "127.0.0.1"} | _UNLIMITED


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: here", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def post(path: str, body: str, *headers: str) -> bytes:
    return get(path, f"Content-Length: {len(body)}", *(headers or (FORM_TYPE,)), method="POST") + body.encode()


def fill(unit: str, size: int = SIZE) -> str:
    """Repeat the unit up to the size."""
    return unit * (size // len(unit))


def make_hostile_requests(access_token: str) -> list[HostileRequest]:
    """Return all hostile requests. `access_token` must be live, for the requests that need one."""
    return [
        *_cookies(),
        *_forms(),
        *_names(),
        *_scopes(),
        *_queries(access_token),
        *_headers(access_token),
        *_heads(),
        *_bodies(),
        *_lines(),
    ]


def _cookies() -> Iterator[HostileRequest]:
    for name, unit in {"cookies": "a=b; ", "our own cookies": f"{DEVICE_COOKIE}=; "}.items():
        yield HostileRequest.of(f"a cookie of {name}", get("/sessions/", f'Cookie: x="{fill(unit)}"'), 200)
    headers = [f"Cookie: {BROWSER_COOKIE}={fill('a', 200)}"] * 250
    yield HostileRequest.of("250 cookie headers", get(f"{AUTHORIZATION}?{AUTHORIZATION_QUERY}", *headers), 200)


def _forms() -> Iterator[HostileRequest]:
    for unit, status in {"%41&": 400, "%41a": 401}.items():
        yield HostileRequest.of(f"a form of {unit}", post(TOKEN, fill(unit, FORM)), status)
    long = fill("%41", FORM - 200)
    yield HostileRequest.of("a long client_secret", post(TOKEN, f"client_id=phone-app&client_secret={long}"), 401)
    refresh = f"client_id=phone-app&grant_type=refresh_token&refresh_token={long}"
    yield HostileRequest.of("a long refresh_token", post(TOKEN, refresh), 400)
    yield HostileRequest.of("a content type of parameters", post(TOKEN, "a=b", f"{FORM_TYPE}{fill(';')};"), 400)


def _names() -> Iterator[HostileRequest]:
    for name, unit in {"combining characters": COMBINING, "ligatures": "\ufdfa"}.items():
        username = fill(quote(unit), FORM - 300)
        yield HostileRequest.of(f"a user name of {name}", _log_in(username, "x"), 400)
    yield HostileRequest.of("a long password", _log_in("alice@example.com", fill("%F0%9F%97%9D")), 400)


def _log_in(username: str, password: str) -> bytes:
    grant = "grant_type=password&client_id=phone-app&scope=realm:main+role:enduser"
    return post(TOKEN, f"{grant}&username={username}&password={password}")


def _scopes() -> Iterator[HostileRequest]:
    scope = fill("role:orderer+")
    grant = "client_id=phone-app&grant_type=password&username=a&password=a"
    yield HostileRequest.of("a scope of items", post(TOKEN, f"{grant}&scope={scope}"), 400)
    data = get(f"{AUTHORIZATION}?{AUTHORIZATION_QUERY}&scope={scope}")
    yield HostileRequest.of("a scope of items at authorization", data, 303)


def _queries(access_token: str) -> Iterator[HostileRequest]:
    bearer = f"Authorization: Bearer {access_token}"
    for path in (AUTHORIZATION, "/sessions/"):
        yield HostileRequest.of(f"a query of %41& at {path}", get(f"{path}?{fill('%41&')}"), 400)
    for unit in ("%41&", "%41"):
        yield HostileRequest.of(f"a query of {unit} at verify", get(f"{VERIFY}?{fill(unit)}", bearer), 403)
    state = fill("%F0%9F%97%9D")
    yield HostileRequest.of("a long state", get(f"{AUTHORIZATION}?{AUTHORIZATION_QUERY}&state={state}"), 303)


def _headers(access_token: str) -> Iterator[HostileRequest]:
    for name, value in {"letters": fill("a"), "tabs": fill("\t") + "a"}.items():
        yield HostileRequest.of(f"a bearer of {name}", get(VERIFY, f"Authorization: Bearer {value}"), 401)
    basic = b64encode(f"a:{fill('%41', 44_000)}".encode()).decode()
    yield HostileRequest.of("Basic of escapes", post(TOKEN, "a=b", FORM_TYPE, f"Authorization: Basic {basic}"), 401)
    yield HostileRequest.of("250 bearers", get(VERIFY, *["Authorization: Bearer a"] * 250), 401)
    yield HostileRequest.of("a head of 70 KB at verify", get(VERIFY, f"X: {fill('a', 70_000)}"), 401)
    bearer = f"Authorization: Bearer {access_token}"
    for name, value in {"X-Forwarded-For": fill(","), "Connection": fill("a,"), "Expect": fill("a")}.items():
        yield HostileRequest.of(f"a long {name}", get(VERIFY, bearer, f"{name}: {value}"), 200)
    for host, status in ((fill("a."), 200), (fill("%41") + "%", 400)):
        yield HostileRequest.of(
            f"a long Host that is {status}", get("/healthz").replace(b"here", host.encode()), status
        )
    yield HostileRequest.of("a long Accept", get("/x", f"Accept: {fill('a;b ; ,')}"), 404)
    for name, value in {"Accept-Language": fill("de,en;q=0.5,"), "If-None-Match": fill('"a",')}.items():
        yield HostileRequest.of(f"a long {name}", get("/sessions/", f"{name}: {value}"), 200)


def _heads() -> Iterator[HostileRequest]:
    yield HostileRequest.of("26,000 headers", get("/", *["a:b"] * 26_000), 431)
    yield HostileRequest.of("a head without end", get("/", *["a:b"] * 60_000)[:-2], 431)
    yield HostileRequest.of("an address without end", b"GET /?" + b"a" * READ, 431)
    yield HostileRequest.of("blank lines", b"\r\n" * (READ // 2) + get("/healthz"), 200)
    yield HostileRequest.of("a path of 60 KB", get(f"/{fill('%41')}"), 431)
    yield HostileRequest.of("a path of 4 KB", get(f"/authorization/{fill('../', 4000)}"), 404)


def _bodies() -> Iterator[HostileRequest]:
    head = get(TOKEN, CHUNKED, FORM_TYPE, method="POST")
    quick = get(VERIFY, CHUNKED, method="POST")
    yield HostileRequest.of("trailers", quick + b"0\r\n" + b"a:b\r\n" * 50_000, 431, 401, 0)
    yield HostileRequest.of("a trailer without end", quick + b"0\r\na:" + b"b" * 400_000, 401, 0)
    yield HostileRequest.of("one-byte chunks", head + b"1\r\na\r\n" * 40_000 + b"0\r\n\r\n", 400)
    yield HostileRequest.of("chunk extensions", head + b"1;a=b\r\na\r\n" * 25_000 + b"0\r\n\r\n", 400)
    yield HostileRequest.of("a chunk size without end", head + b"0" * 400_000, 400)
    yield HostileRequest.of("a body past all limits", head + b"1000000\r\n" + b"a" * 4_000_000, 413)
    announced = get(TOKEN, FORM_TYPE, "Content-Length: 100000000", method="POST")
    yield HostileRequest.of("an announced body past all limits", announced + b"a" * 4_000_000, 413)


def _lines() -> Iterator[HostileRequest]:
    yield HostileRequest.of("9,000 requests in line", get("/healthz") * 9_000, 0)
    many = ["a:b"] * 240
    yield HostileRequest.of("16 requests of 250 headers", get("/healthz", *many) * 16, 200, answers=16)
    upgrade = get("/healthz", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMA", *many)
    yield HostileRequest.of("16 upgrades of 250 headers", upgrade * 16, 200, answers=16)
    chunks = get(VERIFY, CHUNKED, method="POST") + b"1\r\na\r\n" * 250 + b"0\r\n\r\n"
    yield HostileRequest.of("16 requests of 250 chunks", chunks * 16, 401, answers=16)
    yield HostileRequest.of("16 forms of 64 KiB", post(TOKEN, fill("a", FORM - 1)) * 16, 401, answers=16)


class Caller:
    """A client with one connection at a time, which it keeps until the server closes it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: socket.socket | None = None
        self._received = b""

    def ask(self, hostile: HostileRequest) -> Answer:
        """Return the first answer; its status is 0 if the connection ended without one."""
        if self._connection is None:
            self._connection = socket.create_connection(("127.0.0.1", self._port), MAX_WAIT_SECONDS)
        try:
            self._connection.sendall(hostile.data)
            answers = [self._read_answer() for _ in range(hostile.answers)]
        except OSError:
            answers = [self._read_rest()]
        statuses = [answer.status for answer in answers]
        if 0 in statuses or statuses[0] >= 400 or statuses[0] == 100:
            self.close()
        return answers[0]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._received = None, b""

    def _read_answer(self) -> Answer:
        """Return the next answer. The status is 0 if the connection ended within it."""
        while b"\r\n\r\n" not in self._received:
            if not self._read():
                return Answer(0)
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        while len(self._received) < length:
            if not self._read():
                return Answer(0)
        self._received = self._received[length:]
        return Answer(int(head[9:12]), head)

    def _read(self) -> bytes:
        assert self._connection is not None
        data = self._connection.recv(1 << 16)
        self._received += data
        return data

    def _read_rest(self) -> Answer:
        """Return the answer that the server sent before it closed the connection."""
        try:
            return self._read_answer()
        except OSError:
            return Answer(0)
