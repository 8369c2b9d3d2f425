"""Writes of responses: head and body leave together, and no finished part is held back."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

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
