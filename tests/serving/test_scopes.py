"""Extensions of the ASGI scope that our server adds."""

from collections.abc import Iterator

import pytest
from starlette.types import Receive, Scope, Send

from service.web.request.state import BODY_IS_COMPLETE
from tests.serving.conftest import Peer, RunningServer, running_server

POST = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\n"


async def report_body(scope: Scope, receive: Receive, send: Send) -> None:
    body = b"whole" if scope.get(BODY_IS_COMPLETE, False) else b"not whole"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def reporting_server() -> Iterator[RunningServer]:
    with running_server(report_body) as server:
        yield server


def read_report(peer: Peer, sent: bytes) -> bytes:
    """Return the body of the response."""
    peer.send(sent)
    answer = b""
    while not answer.endswith(b"whole"):
        answer += peer.read()
    return answer.rpartition(b"\r\n")[2]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (POST + b"12345", b"whole"),
        (POST + b"1234", b"not whole"),
        (POST, b"not whole"),
        (POST.replace(b"Content-Length: 5", b"Transfer-Encoding: chunked") + b"1\r\na\r\n", b"not whole"),
        (POST.replace(b"Content-Length: 5", b"Transfer-Encoding: chunked") + b"1\r\na\r\n0\r\n\r\n", b"whole"),
    ],
)
def test_body_is_marked_complete_only_when_it_is(reporting_server: RunningServer, sent: bytes, expected: bytes) -> None:
    peer = reporting_server.connect()
    assert read_report(peer, sent) == expected


@pytest.mark.parametrize("trailer_is_late", [False, True])
def test_trailer_is_not_a_header(trailer_is_late: bool) -> None:
    """Credentials in a trailer are not credentials (RFC 9110 §6.5.1)."""

    async def tell_headers(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        found = b"whole" if any(name == b"authorization" for name, _ in scope["headers"]) else b"not whole"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(found))]})
        await send({"type": "http.response.body", "body": found})

    head = b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
    with running_server(tell_headers) as server:
        peer = server.connect()
        if trailer_is_late:
            peer.send(head)
            server.await_received(len(head))
            head = b""
        assert read_report(peer, head + b"0\r\nAuthorization: Basic Zm9v\r\n\r\n") == b"not whole"
