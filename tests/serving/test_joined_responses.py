"""Responses that leave in one write: their bytes, and the malformed ones that uvicorn's own `send` must refuse."""

from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from tests.serving.conftest import GET, running_server

LENGTH = (b"content-length", b"5")


def exchange(request: bytes, headers: list[tuple[bytes, bytes]], *bodies: dict[str, Any]) -> bytes:
    """Return all bytes that the server sends if the application answers with these headers and body messages."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for body in bodies:
            await send({"type": "http.response.body", **body})

    with running_server(app) as server:
        peer = server.connect()
        peer.send(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        return peer.read_all()


@pytest.mark.parametrize(
    ("method", "headers", "bodies", "end"),
    [
        (b"GET", [LENGTH], [{"body": b"hello"}], b"content-length: 5\r\nconnection: close\r\n\r\nhello"),
        (b"GET", [LENGTH], [{"body": b"he", "more_body": True}, {"body": b"llo"}], b"\r\n\r\nhello"),
        (b"HEAD", [LENGTH], [{"body": b"hello"}], b"content-length: 5\r\nconnection: close\r\n\r\n"),
        (b"GET", [], [{"body": b"hello"}], b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        (b"GET", [LENGTH, (b"connection", b"close")], [{"body": b"hello"}], b"connection: close\r\n\r\nhello"),
    ],
    ids=["whole", "in parts", "HEAD", "without length", "named connection"],
)
def test_a_response_arrives_whole(method: bytes, headers: Any, bodies: Any, end: bytes) -> None:
    answer = exchange(GET.replace(b"GET", method, 1), headers, *bodies)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(end)
    assert answer.count(b"connection: close") == 1


@pytest.mark.parametrize(
    "header",
    [(b"x-note", b"a\r\nset-cookie: b=c"), (b"x-note", b"a\nb"), (b"x\r\nset-cookie", b"b"), (b"x-note", b"\0")],
)
def test_a_header_with_control_characters_is_never_sent(header: tuple[bytes, bytes]) -> None:
    answer = exchange(GET, [LENGTH, header], {"body": b"hello"})
    assert b"set-cookie" not in answer
    assert b"hello" not in answer


def test_a_failure_between_head_and_body_is_a_500() -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [LENGTH]})
        raise RuntimeError("no body")

    with running_server(fail) as server:
        peer = server.connect()
        peer.send(GET)
        assert peer.read_all().startswith(b"HTTP/1.1 500 ")


def test_a_body_that_differs_from_its_length_ends_the_connection() -> None:
    assert not exchange(GET, [LENGTH], {"body": b"hello, world"}).endswith(b"world")
