"""The ASGI scope of our server: what comes behind a body is not part of it."""

from __future__ import annotations

import pytest
from starlette.types import Receive, Scope, Send

from tests.serving.conftest import Peer, running_server


def read_report(peer: Peer, sent: bytes) -> bytes:
    """Return the body of the response."""
    peer.send(sent)
    answer = b""
    while not answer.endswith(b"whole"):
        answer += peer.read()
    return answer.rpartition(b"\r\n")[2]


@pytest.mark.parametrize("trailer_is_late", [False, True])
def test_what_comes_behind_a_body_is_no_header(trailer_is_late: bool) -> None:
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
