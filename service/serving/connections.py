"""One connection as uvicorn serves it, with the limits of time and room that uvicorn leaves to a proxy.

A peer that owes us the head of a request, or does not take what we answered, is waited for ten seconds, and never
instead of another: where too many connections are open, the one that has owed a request the longest goes.

Clauses: none of the standards; SPEC is silent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from service.protocol.errors import HeadTooLarge, InvalidRequest, OAuthError, RequestTooSlow
from service.protocol.refusal import render_refusal
from service.scopes import IS_WHOLE

__all__ = ["HEAD_SECONDS", "Connection", "Connections"]

HEAD_SECONDS: Final = 10.0
"""From the beginning of a connection, or its last answer, until the head of the next request is here as a whole."""

UNREAD_SECONDS: Final = 10.0
MOST_HEAD_BYTES: Final = 128 * 1024
"""Of a head that has no end yet. What has one is held to its limit in the application, which knows the address."""

MOST_IN_LINE: Final = 32
"""Requests that were sent before the one ahead of them was answered. No proxy does that, and each takes memory."""

_CONTINUE: Final = b"HTTP/1.1 100 "

log = logging.getLogger("service.serving.connections")


class Connections(ServerState):
    """All connections of this process; and which of them wait for their peers since when, the longest first."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.is_ending = False
        self.owing: dict[Connection, float] = {}
        self.unread: dict[Connection, float] = {}
        self._closed_for_room = 0

    def make_room(self) -> None:
        """Closes one at most: this is asked at every connection that is new."""
        if len(self.connections) > self.most and self.owing:
            next(iter(self.owing)).abort()
            self._closed_for_room += 1

    def end_late(self, now: float) -> None:
        for connection in tuple(_late(self.owing, now - HEAD_SECONDS)):
            connection.end_owing()
        for connection in tuple(_late(self.unread, now - UNREAD_SECONDS)):
            connection.abort()
        if self._closed_for_room:
            log.warning(
                "%d connections without a request were closed: more than %d were open",
                self._closed_for_room,
                self.most,
            )
            self._closed_for_room = 0

    def announce_end(self) -> None:
        self.is_ending = True
        for connection in self.connections:
            if isinstance(connection, Connection):
                connection.announce_end()


def _late(waiting: dict[Connection, float], before: float) -> Iterator[Connection]:
    for connection, since in waiting.items():
        if since > before:
            return
        yield connection


class TooManyInLine(Exception):
    """Ends the reading of a connection; uvicorn sees to the rest."""


class _Answering:
    """What a cycle knows of the transport. The head of an answer is held until its body comes, or its end.

    uvicorn writes the two one after the other, and each write would be a system call and a packet.
    """

    __slots__ = ("_has_begun", "_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self._has_begun = False

    def write(self, data: bytes) -> None:
        if not self._has_begun and not data.startswith(_CONTINUE):
            self._has_begun, self._head = True, data
            return
        if self._head:
            data, self._head = self._head + data, b""
        self._transport.write(data)

    def end(self) -> None:
        """What is written next is the head of another answer."""
        self._flush()
        self._has_begun = False

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _flush(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""


class Connection(HttpToolsProtocol):
    """uvicorn's own, and a place in one of the two lists of Connections while we wait for the peer."""

    _head_bytes = 0
    _head_begun = False

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # Under names of our own, since every request comes by here several times.
        self._all = cast(Connections, self.server_state)
        self._owing = self._all.owing
        self._unanswered: deque[RequestResponseCycle] = deque()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._answering = _Answering(transport)
        self._await_head()
        self._all.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._leave_unanswered()
        self._owing.pop(self, None)
        self._all.unread.pop(self, None)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_begun:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
                self._refuse(HeadTooLarge("head_too_large"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_begun, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MOST_IN_LINE:
            raise TooManyInLine
        super().on_headers_complete()
        self._head_begun = False
        # What comes behind a chunked body is no header: it would be added to those that were judged already.
        self.headers = []
        self.cycle.transport = cast(asyncio.Transport, self._answering)
        self._unanswered.append(self.cycle)
        self._owing.pop(self, None)
        if self._all.is_ending:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        super().on_message_complete()
        # As a rule before the application has begun: a short body comes along with its head.
        self.scope[IS_WHOLE] = True  # type: ignore[typeddict-unknown-key]

    def on_response_complete(self) -> None:
        self._answering.end()
        super().on_response_complete()
        if self._unanswered:
            self._unanswered.popleft()
        if self.transport.is_closing():
            self._await_reading()
        elif self.cycle.response_complete:
            self._await_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._all.unread.pop(self, None)

    def send_400_response(self, msg: str) -> None:
        """Where uvicorn can make nothing of what came, in the form of all our errors; where another answer is due or
        on its way, silently, lest this one be taken for it.
        """
        if self.pipeline or (self not in self._owing and self.cycle.response_started):
            self.abort()
        else:
            self._refuse(InvalidRequest("request_malformed"))

    def announce_end(self) -> None:
        """The answer that is being made says that it is this connection's last, unless it is on its way already."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_started:
            cycle.keep_alive = False

    def end_owing(self) -> None:
        """A peer that has sent nothing is left in silence; it may be about to send its request somewhere else."""
        if self.transport.is_closing():
            self.abort()
        elif self._head_begun:
            self._refuse(RequestTooSlow("head_too_slow"))
        else:
            self._close()

    def abort(self) -> None:
        self._owing.pop(self, None)
        self._all.unread.pop(self, None)
        self._leave_unanswered()
        self.transport.abort()

    def _await_head(self) -> None:
        self._owing[self] = self.loop.time()

    def _await_reading(self) -> None:
        self._all.unread.setdefault(self, self.loop.time())

    def _leave_unanswered(self) -> None:
        """uvicorn tells the last request only that its peer has gone; the others would write to what is closed."""
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
        self._unanswered.clear()

    def _refuse(self, error: OAuthError) -> None:
        refusal = render_refusal(error)
        headers = [(name.lower().encode(), value.encode()) for name, value in refusal.headers.items()]
        headers += [(b"content-length", b"%d" % len(refusal.body)), (b"connection", b"close")]
        lines = [b"%b: %b\r\n" % header for header in (*self.server_state.default_headers, *headers)]
        self.transport.write(b"".join([STATUS_LINE[refusal.status], *lines, b"\r\n", refusal.body]))
        self._close()

    def _close(self) -> None:
        self._owing.pop(self, None)
        self._await_reading()
        self._leave_unanswered()
        self.transport.close()
