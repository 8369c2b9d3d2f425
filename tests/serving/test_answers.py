"""Writes of responses: equal to those of uvicorn, head and body together, and no finished part held back."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from service.serving.uvicorn_protocol import MAX_PIPELINED
from tests.serving.conftest import Peer, RunningServer, running_server
from tests.support.waiting import wait_until


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """`/echo` returns the request body, `/parts` sends two parts, and `/broken` never finishes its body."""
    start: Message = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]}
    if scope["path"] == "/echo":
        body = (await receive())["body"]
        await send(start)
        await send({"type": "http.response.body", "body": body})
        return
    await send(start)
    if scope["path"] == "/broken":
        raise RuntimeError("broken")
    await send({"type": "http.response.body", "body": b"HTTP", "more_body": True})
    await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def answering_server() -> Iterator[RunningServer]:
    with running_server(answer) as server:
        yield server


def read_until(peer: Peer, end: bytes) -> bytes:
    answer = b""
    while not answer.endswith(end):
        answer += peer.read() or pytest.fail(f"the connection ended: {answer!r}")
    return answer


def test_head_and_body_leave_in_one_piece(answering_server: RunningServer) -> None:
    peer = answering_server.connect()
    for _ in range(50):
        peer.send(b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\nbody")
        assert peer.read().endswith(b"\r\n\r\nbody")


def test_a_head_without_a_body_is_not_kept(answering_server: RunningServer) -> None:
    peer = answering_server.connect()
    peer.send(b"HEAD /parts HTTP/1.1\r\nHost: here\r\n\r\n")
    assert read_until(peer, b"\r\n\r\n").startswith(b"HTTP/1.1 200")
    peer.send(b"HEAD /parts HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
    assert peer.read_all().startswith(b"HTTP/1.1 200")


def test_a_body_in_parts_may_look_like_a_head(answering_server: RunningServer) -> None:
    peer = answering_server.connect()
    for _ in range(2):
        peer.send(b"GET /parts HTTP/1.1\r\nHost: here\r\n\r\n")
        assert read_until(peer, b"HTTP").count(b"HTTP") == 2


def test_who_waits_for_leave_to_send_its_body_gets_it(answering_server: RunningServer) -> None:
    peer = answering_server.connect()
    peer.send(b"POST /echo HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
    assert read_until(peer, b"\r\n\r\n").startswith(b"HTTP/1.1 100")
    peer.send(b"body")
    assert read_until(peer, b"body").startswith(b"HTTP/1.1 200")


def test_what_breaks_after_its_head_has_sent_that(answering_server: RunningServer) -> None:
    peer = answering_server.connect()
    peer.send(b"GET /broken HTTP/1.1\r\nHost: here\r\n\r\n")
    assert peer.read_all().startswith(b"HTTP/1.1 200")


def test_answers_in_line_keep_their_order(answering_server: RunningServer) -> None:
    peer = answering_server.connect()
    bodies = [b"%04d" % number for number in range(MAX_PIPELINED)]
    heads = b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\n"
    peer.send(b"".join(heads + body for body in bodies))
    answers = read_until(peer, bodies[-1])
    assert [answer[-4:] for answer in answers.split(b"HTTP/1.1 200")[1:]] == bodies


def test_a_peer_that_leaves_in_the_middle_harms_nobody(answering_server: RunningServer) -> None:
    for _ in range(20):
        peer = answering_server.connect()
        peer.send(b"GET /parts HTTP/1.1\r\nHost: here\r\n\r\n")
        peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
    wait_until(lambda: not answering_server.is_open(), "the ends of all connections")
    test_head_and_body_leave_in_one_piece(answering_server)


def start_of(*headers: tuple[bytes, bytes], status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def part_of(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


LENGTH_4 = (b"content-length", b"4")
RESPONSES: dict[str, Sequence[Message]] = {
    "whole": [start_of(LENGTH_4, (b"x-name", b"a\tb \xe9")), part_of(b"body")],
    "empty": [start_of((b"content-length", b"0")), part_of(b"")],
    "in parts": [start_of(LENGTH_4), part_of(b"bo", more=True), part_of(b"dy")],
    "chunked": [start_of(), part_of(b"bo", more=True), part_of(b"", more=True), part_of(b"dy")],
    "chunked by the application": [start_of((b"transfer-encoding", b"Chunked")), part_of(b"body")],
    "chunked and empty": [start_of(), part_of(b"")],
    "without content": [start_of(status=204), part_of(b"")],
    "not modified": [start_of((b"etag", b"1"), status=304), part_of(b"")],
    "closed by the application": [start_of(LENGTH_4, (b"connection", b"keep-alive, Close")), part_of(b"body")],
    "kept by the application": [start_of(LENGTH_4, (b"connection", b"keep-alive")), part_of(b"body")],
    "error": [start_of(LENGTH_4, status=503), part_of(b"body")],
    "too long": [start_of(LENGTH_4), part_of(b"body!")],
    "too short": [start_of(LENGTH_4), part_of(b"bod")],
    "never complete": [start_of(LENGTH_4), part_of(b"bo", more=True)],
    "never begun": [],
    "without a head": [part_of(b"body")],
    "with two heads": [start_of(LENGTH_4), start_of(LENGTH_4)],
    "after its end": [start_of(LENGTH_4), part_of(b"body"), part_of(b"more")],
    "LF in a value": [start_of(LENGTH_4, (b"x-name", b"a\nset-cookie: b")), part_of(b"body")],
    "CR in a value": [start_of(LENGTH_4, (b"x-name", b"a\rb")), part_of(b"body")],
    "NUL in a value": [start_of(LENGTH_4, (b"x-name", b"a\0b")), part_of(b"body")],
    "LF in a name": [start_of(LENGTH_4, (b"x\nname", b"a")), part_of(b"body")],
    "colon in a name": [start_of(LENGTH_4, (b"x:name", b"a")), part_of(b"body")],
}


async def send_named_response(scope: Scope, receive: Receive, send: Send) -> None:
    """Send the messages of RESPONSES that the query names by their index."""
    for message in list(RESPONSES.values())[int(scope["query_string"])]:
        await send(dict(message))


@pytest.fixture(scope="module")
def both_servers() -> Iterator[tuple[RunningServer, RunningServer]]:
    options: dict[str, Any] = {"date_header": False, "headers": [("X-Added", "by an option")]}
    with (
        running_server(send_named_response, **options) as ours,
        running_server(send_named_response, http="httptools", **options) as uvicorns,
    ):
        yield ours, uvicorns


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("name", RESPONSES)
def test_responses_are_the_bytes_that_uvicorn_sends(
    both_servers: tuple[RunningServer, RunningServer], name: str, version: bytes, method: bytes
) -> None:
    index = list(RESPONSES).index(name)
    request_ = b"%b /?%d HTTP/%b\r\nHost: here\r\n" % (method, index, version)
    sent = request_ + b"\r\n" + request_ + b"Connection: close\r\n\r\n"
    answers = []
    for server in both_servers:
        peer = server.connect()
        peer.send(sent)
        answers.append(peer.read_all())
    assert answers[0] == answers[1]
    # A response with a malformed header is not sent at all.
    assert answers[0].startswith(b"HTTP/1.1 ") is not name.endswith(("in a value", "in a name"))
