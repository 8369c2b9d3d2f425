"""Connections that send slowly, in part or without end, or read nothing: each is closed, and blocks no other."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from starlette.types import Receive, Scope, Send

from service.serving.connections import HEAD_SECONDS, MAX_PIPELINED, MAX_UNFINISHED_HEAD_BYTES, UNREAD_SECONDS
from tests.serving.conftest import ANSWER, GET, SLOW, Peer, RunningServer, running_server
from tests.serving.refusals import assert_refused
from tests.support.loop_time import LoopTime
from tests.support.waiting import wait_until

LOOK_SECONDS = 1.0
"""The interval at which the server checks for slow connections."""

IDLE_SECONDS = 5.0
"""The time limit of the server of these tests."""

HALF_A_HEAD = b"POST / HTTP/1.1\r\nHost: here\r\nX-Half: a"


@pytest.fixture
def server(held_time: LoopTime) -> Iterator[RunningServer]:
    with running_server(held_time=held_time) as server:
        yield server


@pytest.mark.clause("decided-slow-head")
@pytest.mark.parametrize("answered", [0, 1], ids=["head", "second head"])
def test_half_a_head_is_waited_for_and_then_refused(server: RunningServer, answered: int) -> None:
    peer = server.connect()
    for _ in range(answered):
        peer.send(GET)
        assert peer.read().startswith(ANSWER)
    peer.send(HALF_A_HEAD)
    server.await_received(answered * len(GET) + len(HALF_A_HEAD))
    server.advance(HEAD_SECONDS - LOOK_SECONDS)
    assert server.is_open()
    server.advance(2 * LOOK_SECONDS)
    assert_refused(peer.read_all(), 408, "did not arrive in time")


@pytest.mark.clause("decided-slow-head")
def test_silent_connection_is_closed(server: RunningServer) -> None:
    peer = server.connect()
    wait_until(server.is_open, "the connection")
    server.advance(HEAD_SECONDS - LOOK_SECONDS)
    assert server.is_open()
    server.advance(2 * LOOK_SECONDS)
    assert peer.read_all() == b""


@pytest.mark.parametrize("requests", [1, 3])
def test_an_idle_connection_is_closed_in_silence(server: RunningServer, requests: int) -> None:
    """The idle time begins anew with each response."""
    peer = server.connect()
    for _ in range(requests):
        peer.send(GET)
        assert peer.read().startswith(ANSWER)
        server.advance(IDLE_SECONDS - LOOK_SECONDS)
        assert server.is_open()
    server.advance(2 * LOOK_SECONDS)
    assert peer.read_all() == b""


def test_the_idle_time_begins_after_the_response(server: RunningServer) -> None:
    peer = server.connect()
    peer.send(GET)
    assert peer.read().startswith(ANSWER)
    peer.send(SLOW)
    server.await_received(len(GET + SLOW))
    server.advance(3 * IDLE_SECONDS)
    server.answer_slow()
    assert peer.read().startswith(ANSWER)
    server.advance(IDLE_SECONDS - LOOK_SECONDS)
    assert server.is_open()
    server.advance(2 * LOOK_SECONDS)
    assert peer.read_all() == b""


@pytest.mark.clause("decided-slow-head")
@pytest.mark.parametrize(
    ("begun", "byte"),
    [(HALF_A_HEAD, b"x"), (b"", b"\r\n"), (b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 5000\r\n\r\n", b"x")],
    ids=["head", "blank lines", "body of a request that was answered before"],
)
def test_a_byte_now_and_then_does_not_help(server: RunningServer, begun: bytes, byte: bytes) -> None:
    peer = server.connect()
    peer.send(begun)
    sent = len(begun)
    with suppress(OSError):  # the server hangs up
        for _ in range(round(HEAD_SECONDS / LOOK_SECONDS) + 1):
            peer.send(byte)
            sent += len(byte)
            wait_until(lambda: server.connections.received_bytes >= sent or not server.is_open(), "a byte")  # noqa: B023
            server.advance(LOOK_SECONDS)
    peer.read_all()
    wait_until(lambda: not server.is_open(), "the connection to be closed")


@pytest.mark.clause("decided-unread-answer")
def test_connection_with_unread_answers_is_closed(server: RunningServer) -> None:
    server.connect().send(GET.replace(b"/ ", b"/long ", 1) * 8)
    wait_until(lambda: server.connections.awaiting_reader, "an answer that is not read")
    server.advance(UNREAD_SECONDS - LOOK_SECONDS)
    assert server.is_open()
    server.advance(2 * LOOK_SECONDS)
    wait_until(lambda: not server.is_open(), "the connection to be cut")


@pytest.mark.clause("decided-head-limit")
@pytest.mark.parametrize("piece", [b"X: " + b"x" * 1000 + b"\r\n", b"x" * 1000], ids=["many headers", "one header"])
def test_a_head_without_end_is_refused_on_its_way(server: RunningServer, piece: bytes) -> None:
    peer = server.connect()
    peer.send(HALF_A_HEAD)
    # The test sends little more than the limit. Unread bytes at the close would reset the connection.
    for _ in range(MAX_UNFINISHED_HEAD_BYTES // len(piece) + 1):
        peer.send(piece)
    assert_refused(peer.read_all(), 431, "64 KiB")


@pytest.mark.clause("decided-requests-in-line")
def test_too_many_pipelined_requests_end_the_connection(server: RunningServer) -> None:
    peer = server.connect()
    peer.send(GET * MAX_PIPELINED)
    answers = b""
    while answers.count(ANSWER) < MAX_PIPELINED:
        answers += peer.read()
    peer.send(GET * 1000)
    assert peer.read_all().count(ANSWER) < 1000


@pytest.mark.clause("decided-malformed-request")
@pytest.mark.parametrize(
    "garbage",
    [
        b"hello\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"GET / HTTP/1.1\r\nA\0: b\r\n\r\n",
        b"CONNECT here:443 HTTP/1.1\r\nHost: here\r\n\r\n",
    ],
    ids=["no request line", "no address", "TLS", "NUL", "CONNECT"],
)
def test_malformed_request_is_refused_as_json_error(server: RunningServer, garbage: bytes) -> None:
    peer = server.connect()
    peer.send(garbage)
    assert_refused(peer.read_all(), 400, "Malformed HTTP request")


@pytest.mark.clause("decided-room-for-connections")
def test_longest_waiting_connection_makes_room(server: RunningServer) -> None:
    server.connections.most = 5
    silent = [server.connect() for _ in range(4)]
    wait_until(lambda: len(server.connections.connections) == 4, "four connections")
    busy = server.connect()
    busy.send(SLOW)
    wait_until(lambda: len(server.connections.tasks) == 1, "the request")
    late: list[Peer] = []
    for _ in range(3):
        late.append(server.connect())
        late[-1].send(GET)
        assert late[-1].read().startswith(ANSWER)

    # The three oldest idle connections were closed. The one with a request in progress stayed.
    assert [peer.read() for peer in silent[:3]] == [b""] * 3
    server.answer_slow()
    assert busy.read().startswith(ANSWER)
    assert not server.connections.awaiting_reader


@pytest.mark.clause("decided-room-for-connections")
def test_connection_idle_for_longest_makes_room_for_a_newcomer(server: RunningServer) -> None:
    server.connections.most = 3
    idle = [server.connect() for _ in range(3)]
    for peer in idle:
        peer.send(GET)
        assert peer.read().startswith(ANSWER)
        server.advance(LOOK_SECONDS)
    newcomer = server.connect()
    newcomer.send(GET)

    assert newcomer.read().startswith(ANSWER)
    assert idle[0].read() == b""


@pytest.mark.clause("decided-room-for-connections")
def test_connections_that_owe_a_body_make_room_for_a_newcomer(held_time: LoopTime) -> None:
    async def read_body(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    head = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\na"
    with running_server(read_body, held_time=held_time) as server:
        server.connections.most = 5
        owing = [server.connect() for _ in range(5)]
        for number, peer in enumerate(owing, 1):
            peer.send(head)
            server.await_received(number * len(head))
        for peer in owing[:3]:
            newcomer = server.connect()
            newcomer.send(GET)
            assert newcomer.read().startswith(ANSWER)
            assert peer.read() == b""
        owing[-1].send(b"a" * 99)
        assert owing[-1].read().startswith(ANSWER)


@pytest.mark.clause("decided-malformed-request")
@pytest.mark.parametrize("sent", [SLOW * 3, SLOW + b"\0\r\n"])
def test_disconnect_with_pipelined_requests_logs_no_error(
    server: RunningServer, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    peer = server.connect()
    peer.send(sent)
    wait_until(lambda: len(server.connections.tasks) == 1, "the first request")
    server.await_received(len(sent))
    peer.close()
    for _ in range(3):
        server.answer_slow()
    wait_until(lambda: not server.is_open() and not server.connections.tasks, "the end of the connection")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
