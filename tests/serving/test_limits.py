"""Limits of one request: headers, path, Host, chunks, trailers, and a body that continues after its response."""

import contextlib
import io

import msgspec
import pytest
from starlette.types import Receive, Scope, Send

from service.serving.connections import (
    MAX_BODY_BYTES,
    MAX_CHUNKS,
    MAX_HEADERS,
    MAX_OTHER_BYTES,
    MAX_PATH_BYTES,
    REFUSED_REPORT_SECONDS,
)
from tests.serving.conftest import ANSWER, GET, SLOW, TICK_SECONDS, Peer, RunningServer, running_server
from tests.serving.refusals import assert_refused
from tests.support.loop_time import LoopTime
from tests.support.waiting import wait_until

HOSTS = (b"a.example:8000", b"[::1]:80", b"127.0.0.1", b"x_y-z.", b"a:", b"%C3%A4.example", b" a \t")
NO_HOSTS = (
    b"a b",
    b"a/b",
    b"u:p@a",
    b"[::1",
    b"a,b",
    b"a:b",
    b"[x]",
    b"a?b",
    b"a#b",
    b"%zz",
    b"\xc3\xa4",
    b"a\\b",
    b"::1",
)
CHUNKED = b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"


def send_all(peer: Peer, data: bytes) -> None:
    """Send all bytes. The server may close the connection before the end."""
    with contextlib.suppress(OSError):
        peer.send(data)


def assert_usable(peer: Peer) -> None:
    peer.send(GET)
    assert peer.read().startswith(ANSWER)


@pytest.mark.clause("decided-head-limit")
def test_a_request_has_256_headers_at_most(server: RunningServer) -> None:
    def make(count: int) -> bytes:
        return GET[:-2] + b"a:b\r\n" * (count - 1) + b"\r\n"

    peer = server.connect()
    peer.send(make(MAX_HEADERS))
    assert peer.read().startswith(ANSWER)
    peer.send(make(MAX_HEADERS + 1))
    assert_refused(peer.read_all(), 431, "256 headers")


@pytest.mark.clause("decided-head-limit")
def test_a_path_has_4_kib_at_most_and_a_query_may_be_longer(server: RunningServer) -> None:
    path = b"/" + b"a" * (MAX_PATH_BYTES - 1)
    peer = server.connect()
    for address in (path, path + b"?" + b"a" * 10_000):
        peer.send(GET.replace(b"/ ", address + b" ", 1))
        assert peer.read().startswith(ANSWER)
    peer.send(GET.replace(b"/ ", path + b"a ", 1))
    assert_refused(peer.read_all(), 431, "4 KiB")


@pytest.mark.clause("decided-codings")
@pytest.mark.parametrize("codings", [b"gzip, chunked", b"gzip", b"identity"])
def test_an_unknown_transfer_coding_is_refused(server: RunningServer, codings: bytes) -> None:
    peer = server.connect()
    peer.send(CHUNKED.replace(b": chunked", b": Chunked") + b"0\r\n\r\n")
    assert peer.read().startswith(ANSWER)
    peer.send(CHUNKED.replace(b"chunked", codings) + b"0\r\n\r\n")
    assert_refused(peer.read_all(), 501, "Transfer-Encoding")


@pytest.mark.clause("decided-host-header")
@pytest.mark.parametrize(
    ("request_", "is_served"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", False),
        (b"GET http://a/ HTTP/1.1\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", True),
        (b"GET / HTTP/1.0\r\nHost: a\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", True),
        *((b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host, True) for host in HOSTS),
        *((b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host, False) for host in NO_HOSTS),
        (b"GET / HTTP/1.0\r\nHost: a b\r\n\r\n", False),
    ],
)
def test_a_request_names_one_host(server: RunningServer, request_: bytes, is_served: bool) -> None:
    peer = server.connect()
    peer.send(GET)
    assert peer.read().startswith(ANSWER)
    peer.send(request_)
    if is_served:
        assert peer.read().startswith(ANSWER)
    else:
        assert_refused(peer.read_all(), 400, "one Host header")


@pytest.mark.clause("decided-malformed-request")
@pytest.mark.parametrize("next_", [b"GET / HTTP/1.1\r\n\r\n", GET[:-2] + b"a:b\r\n" * 300, b"\0\r\n"])
def test_a_refusal_is_never_taken_for_the_answer_that_is_due(server: RunningServer, next_: bytes) -> None:
    peer = server.connect()
    peer.send(SLOW + next_)
    assert peer.read_all() == b""


@pytest.mark.clause("decided-bytes-beside-the-body")
@pytest.mark.parametrize(
    "rest",
    [
        b"0\r\n" + b"a:b\r\n" * (MAX_HEADERS + 2),
        b"0\r\na:" + b"b" * 2 * MAX_OTHER_BYTES,
        b"1\r\na\r\n" * (MAX_CHUNKS + 1),
        b"1;" + b"a" * 2 * MAX_OTHER_BYTES,
        b"0" * 2 * MAX_OTHER_BYTES,
    ],
    ids=["trailers", "one trailer", "chunks", "a chunk extension", "a chunk size"],
)
def test_oversized_framing_ends_the_connection(server: RunningServer, rest: bytes) -> None:
    peer = server.connect()
    peer.send(CHUNKED)
    assert peer.read().startswith(ANSWER)
    send_all(peer, rest)
    assert peer.read_all() == b""


@pytest.mark.clause("decided-body-limit", "decided-early-answer-is-the-last")
@pytest.mark.parametrize("size", [1, MAX_BODY_BYTES])
def test_a_body_after_its_answer_is_dropped_before_the_close(server: RunningServer, size: int) -> None:
    """A close before its end would reset the connection, and the caller might lose the answer."""
    peer = server.connect()
    peer.send(GET[:-2] + b"Content-Length: %d\r\n\r\n" % size)
    server.await_received(1)
    peer.send(b"a" * size)
    answer = peer.connection.makefile("rb").read()
    assert answer.startswith(ANSWER)
    assert b"connection: close" in answer
    wait_until(lambda: not server.is_open(), "the end of the connection")


@pytest.mark.clause("decided-body-limit")
def test_a_body_after_its_answer_has_a_mebibyte_at_most(server: RunningServer) -> None:
    peer = server.connect()
    peer.send(GET[:-2] + b"Content-Length: %d\r\n\r\n" % (10 * MAX_BODY_BYTES))
    send_all(peer, b"a" * (MAX_BODY_BYTES + 1))
    assert peer.read_all().startswith(ANSWER)
    wait_until(lambda: not server.is_open(), "the end of the connection")


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body of the request."""
    body, is_whole = b"", False
    while not is_whole:
        message = await receive()
        body, is_whole = body + message["body"], not message["more_body"]
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


UPGRADE = b"Connection: Upgrade\r\nUpgrade: %b\r\n"
INNER = GET.replace(b"/ ", b"/long ", 1)
BODIES = {
    "length": (b"Content-Length: %d\r\n\r\n" % len(INNER), INNER),
    "chunks": (b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n%b\r\n0\r\n\r\n" % (len(INNER), INNER)),
}


@pytest.mark.clause("decided-upgrade-ignored")
@pytest.mark.parametrize(("framing", "sent"), BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("split", [None, 0, 1, 20, -1], ids=["whole", "after the head", "1", "20", "last byte"])
def test_body_after_an_upgrade_is_not_a_request(framing: bytes, sent: bytes, split: int | None) -> None:
    """The application receives it with any framing, and the following request is a separate one."""
    head = b"POST / HTTP/1.1\r\nHost: here\r\n" + UPGRADE % b"websocket" + framing
    with running_server(echo) as server:
        peer = server.connect()
        for number in range(2):
            if split is None:
                peer.send(head + sent)
            else:
                peer.send(head + sent[:split])
                server.await_received(number * len(head + sent) + len(head + sent[:split]))
                peer.send(sent[split:])
            answer = b""
            while not answer.endswith(INNER):
                answer += peer.read() or pytest.fail(f"the connection ended after {answer!r}")
            assert answer.count(ANSWER) == 1
        assert_usable(peer)


@pytest.mark.clause("decided-upgrade-ignored")
@pytest.mark.parametrize(
    ("coding", "status"), [(b"gzip", 501), (b"chunked, gzip", 400), (b"identity", 501), (b",", 501)]
)
def test_a_body_of_unknown_length_behind_an_upgrade_is_refused(
    server: RunningServer, caplog: pytest.LogCaptureFixture, coding: bytes, status: int
) -> None:
    peer = server.connect()
    head = CHUNKED.replace(b"chunked", coding)[:-2] + UPGRADE % b"h2c" + b"\r\n"
    peer.send(head + GET)
    assert_refused(peer.read_all(), status, "Malformed HTTP request" if status == 400 else "Transfer-Encoding")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.clause("decided-malformed-request")
def test_refusals_while_reading_are_logged_once_a_second(held_time: LoopTime, json_logs: io.StringIO) -> None:
    with running_server(held_time=held_time) as server:
        for _ in range(20):
            be_refused(server)
        server.advance(REFUSED_REPORT_SECONDS + TICK_SECONDS)
        be_refused(server)

    events = [msgspec.json.decode(line) for line in json_logs.getvalue().splitlines() if "request_rejected" in line]
    assert [line["count"] for line in events] == [1, 20]
    expected = {"status": 431, "reason": "headers_too_many", "address": "127.0.0.1", "count": 1, "level": "warning"}
    assert events[0] | expected == events[0]
    assert "Invalid HTTP request" not in json_logs.getvalue()


def be_refused(server: RunningServer) -> None:
    peer = server.connect()
    peer.send(GET[:-2] + b"a:b\r\n" * MAX_HEADERS + b"\r\n")
    assert_refused(peer.read_all(), 431, "256 headers")
