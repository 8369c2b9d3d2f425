"""The HTTP connections of uvicorn, with limits of time and size that uvicorn leaves to a proxy.

A peer has ten seconds to send the head of a request, and ten seconds to read a response. If too many connections are
open, the connection that has waited longest for its peer is closed, also one that is idle between two requests. A
response that is sent before its request has arrived whole is the last of its connection.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final, NoReturn, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from service.observability.logs import EventLog
from service.protocol.errors import InvalidRequest, OAuthError, render_refusal
from service.protocol.parameters import MAX_FORM_BYTES
from service.serving.responses import JoiningCycle, LingeringTransport
from service.web.request.client_address import LOCAL_PEER
from service.web.request.state import BODY_IS_COMPLETE

HEAD_SECONDS: Final = 10.0
"""Time from the start of a connection, or from the first byte of a later request, until the request's head is whole."""

IDLE_SECONDS: Final = 5.0
UNREAD_SECONDS: Final = 10.0
REFUSED_REPORT_SECONDS: Final = 1.0

_FRAGMENT: Final = ord("#")
_HOST: Final = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|(?:[A-Za-z0-9._~!$&'()*+;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?")
"""A host of RFC 3986 §3.2.2 with or without a port. A comma is refused, since a proxy joins two headers by one."""

MAX_UNFINISHED_HEAD_BYTES: Final = 72 * 1024
"""Limit for an incomplete request head. A complete head is limited by HeadLimit, which knows the client's address.

HeadLimit counts 64 KiB without the separators, so the limit here refuses no head that HeadLimit would accept.
"""

MAX_HEADERS: Final = 256
"""Limit of a request's headers, and of the trailers after its body. Each takes memory and a Python call."""

MAX_PATH_BYTES: Final = 4 * 1024
"""Limit of the bytes of a URL before its query. No path of ours is that long, and uvicorn decodes all of it."""

MAX_CHUNKS: Final = 256
"""Limit of the chunks of one body. A form of 64 KiB comes in a few, and each chunk takes several Python calls."""

MAX_OTHER_BYTES: Final = 320 * 1024
"""Limit of the bytes of a request other than its body: head, sizes and extensions of chunks, trailers.

One read returns up to 256 KiB, and it is unknown how many of these bytes belong to an earlier request.
"""

MAX_BODY_BYTES: Final = 16 * MAX_FORM_BYTES
"""Limit of a body that is read and dropped after a response, so that a caller which still sends can read a 413."""

MAX_PIPELINED: Final = 16
"""Limit of requests sent before an earlier one was answered. No proxy pipelines, and each request takes memory."""

log = logging.getLogger("service.serving.connections")
_event_log = EventLog("service.serving.connections")


class ReadingEnds(Exception):
    """Exception that ends reading, raised in a callback of the parser, which turns it into an HttpParserError."""


class Connections(ServerState):
    """All connections of this process, and since when they have waited for their peers, the longest first.

    `awaiting_request` holds the connections that wait for their first request or the rest of one, `idle` those that
    have received nothing since their last response, and `awaiting_reader` those whose output the peer has not read.
    """

    def __init__(self, most: int, head_seconds: float = HEAD_SECONDS, idle_seconds: float = IDLE_SECONDS) -> None:
        super().__init__()
        self.most = most
        self.head_seconds = head_seconds
        self.idle_seconds = idle_seconds
        self.is_ending = False
        self.idle: dict[HttpConnection, float] = {}
        self.awaiting_request: dict[HttpConnection, float] = {}
        self.awaiting_reader: dict[HttpConnection, float] = {}
        self._closed_for_room = 0
        self._refused = 0
        self._refused_reported_at = -REFUSED_REPORT_SECONDS

    def evict_one(self) -> None:
        """If too many connections are open, close the one that has waited longest for a whole request.

        Closing one is enough, since this is called for each new connection.
        """
        if len(self.connections) > self.most:
            oldest = [next(iter(waiting.items())) for waiting in (self.awaiting_request, self.idle) if waiting]
            if oldest:
                min(oldest, key=itemgetter(1))[0].abort()
                self._closed_for_room += 1

    def forget(self, connection: HttpConnection) -> None:
        for waiting in (self.idle, self.awaiting_request, self.awaiting_reader):
            waiting.pop(connection, None)

    def close_expired(self, now: float) -> None:
        for waiting, seconds in ((self.awaiting_request, self.head_seconds), (self.idle, self.idle_seconds)):
            for connection in tuple(_late(waiting, now - seconds)):
                connection.close_slow()
        for connection in tuple(_late(self.awaiting_reader, now - UNREAD_SECONDS)):
            connection.abort()
        if self._closed_for_room:
            log.warning(
                "%d connections without a complete request were closed, because more than %d were open",
                self._closed_for_room,
                self.most,
            )
            self._closed_for_room = 0

    def report_refused(self, error: OAuthError, address: str, now: float) -> None:
        """Log a request that was refused while it was read: at once, then at most one line a second with a count."""
        self._refused += 1
        if now - self._refused_reported_at >= REFUSED_REPORT_SECONDS:
            fields = {"status": error.status, "reason": error.reason, "address": address, "count": self._refused}
            _event_log.write(logging.WARNING, "request_rejected", fields)
            self._refused, self._refused_reported_at = 0, now

    def announce_end(self) -> None:
        self.is_ending = True
        for connection in self.connections:
            if isinstance(connection, HttpConnection):
                connection.announce_end()


def _late(waiting: dict[HttpConnection, float], before: float) -> Iterator[HttpConnection]:
    for connection, since in waiting.items():
        if since > before:
            return
        yield connection


class HttpConnection(HttpToolsProtocol):
    """uvicorn's connection, which enters itself into Connections while it waits for its peer."""

    transport: LingeringTransport  # type: ignore[assignment]

    _head_begun = False
    _is_in_body = False
    _lingers = False
    """True from a response whose request had not arrived whole. The rest of that request is read and dropped."""

    _keeps_alive = False
    """True if the request permits another one on its connection."""

    _read_bytes = 0
    _other_bytes = 0
    """Bytes received since the read in which the request began, that read included, without the request's body."""

    _body_bytes = 0
    _chunks = 0
    _hosts = 0
    _host = b""
    """The last Host header of this connection. It was well formed, so the same one is not checked again."""

    _reason: OAuthError | None = None
    """The refusal that ended reading, unless it is `request_malformed`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._all = cast("Connections", self.server_state)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(LingeringTransport(transport, self.begin_to_linger))  # type: ignore[arg-type]
        self._await_request()
        self._all.evict_one()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._all.forget(self)

    def data_received(self, data: bytes) -> None:
        if self._all.idle.pop(self, None) is not None:
            self._await_request()
        self._read_bytes = len(data)
        self._other_bytes += self._read_bytes
        self._feed(data)
        if self._other_bytes > MAX_UNFINISHED_HEAD_BYTES and not self.transport.is_closing():
            if self._head_begun:
                self._end_reading(InvalidRequest("head_too_large", status=431))
            elif self._is_in_body and self._other_bytes > MAX_OTHER_BYTES:
                self._end_reading(InvalidRequest("body_in_too_many_chunks"))

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._end_reading(self._reason or InvalidRequest("request_malformed"))
        except httptools.HttpParserUpgrade as upgrade:
            self._read_without_upgrade(data[upgrade.args[0] :])

    def _read_without_upgrade(self, rest: bytes) -> None:
        """Read a head again without its offer of an upgrade, which RFC 9110 §7.8 permits, and then the rest.

        After such a head the parser would read a body that it announces as the next request, which would be request
        smuggling.
        """
        headers = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._read_bytes = self._other_bytes
        self._feed(b"".join([line, *headers, b"\r\n", rest]))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_begun = True
        self._other_bytes = self._read_bytes
        self._body_bytes = self._chunks = self._hosts = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header. This callback runs most often, so it does the work of uvicorn's itself."""
        name = name.lower()
        if name == b"host":
            self._hosts += 1
            if value != self._host and not _HOST.fullmatch(value.strip(b" \t")):
                self._stop(InvalidRequest("host_malformed"))
            self._host = value
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            self._stop(InvalidRequest("transfer_coding_unknown", status=501))
        self.headers.append((name, value))
        if len(self.headers) > MAX_HEADERS:
            self._stop(InvalidRequest("headers_too_many", status=431))

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise ReadingEnds
            return  # the head is read again, see _read_without_upgrade
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ReadingEnds
        self._check_head()
        super().on_headers_complete()
        self.cycle.__class__ = JoiningCycle
        # A new list for the trailers of a chunked body, which the parser also reports. They must not be added to the
        # headers, which were judged already.
        self.headers = []
        self._head_begun, self._is_in_body = False, True
        # If the response begins before the request has arrived whole, it is the last one.
        self._keeps_alive, self.cycle.keep_alive = self.cycle.keep_alive, False

    def _check_head(self) -> None:
        """Refuse a path that is too long, a fragment, and a request that does not name its host once.

        The last two are 400 by RFC 9112 §3.2.
        """
        if len(self.url) > MAX_PATH_BYTES and len(self.url.partition(b"?")[0]) > MAX_PATH_BYTES:
            self._stop(InvalidRequest("path_too_long", status=431))
        if _FRAGMENT in self.url:
            self._stop(InvalidRequest("target_malformed"))
        if self._hosts != 1 and (self._hosts or self.parser.get_http_version() not in ("1.0", "0.9")):
            self._stop(InvalidRequest("host_malformed"))

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > MAX_CHUNKS:
            self._stop(InvalidRequest("body_in_too_many_chunks"))

    def on_body(self, body: bytes) -> None:
        size = len(body)
        self._other_bytes -= size
        self._body_bytes += size
        if self._body_bytes > MAX_BODY_BYTES:
            self._stop(InvalidRequest("form_too_large", status=413))
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._head_begun:
            return  # only a head that offers an upgrade has ended
        self._is_in_body = False
        self._all.awaiting_request.pop(self, None)
        if self._lingers:
            self.transport.close()
            return
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._keeps_alive and not self._all.is_ending
        super().on_message_complete()
        # Usually set before the application runs, since a short body arrives with its head.
        self.scope[BODY_IS_COMPLETE] = True  # type: ignore[typeddict-unknown-key]

    def on_response_complete(self) -> None:
        """Start the next request that has arrived already, or wait for one. uvicorn would start a timer each time."""
        self._all.total_requests += 1
        if self.transport.is_closing():
            self._await_reading()
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        if self._is_in_body or self._head_begun:
            if not self.pipeline:
                self._await_request()
        elif self.cycle.response_complete:
            self._all.idle[self] = self.loop.time()

    def begin_to_linger(self) -> bool:
        """Return True if the connection must read on after its last response, as its request is not whole yet.

        A close would reset the connection, and the peer might lose the response. True is returned once.
        """
        if self._lingers or not self._is_in_body:
            return False
        self._lingers = True
        if self.transport.can_write_eof():  # TLS cannot
            self.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._all.awaiting_reader.pop(self, None)

    def _stop(self, error: OAuthError) -> NoReturn:
        self._reason = error
        raise ReadingEnds

    def _end_reading(self, error: OAuthError) -> None:
        """Send the error and close the connection.

        If an earlier response is still pending, or this request's response has begun, the connection is aborted without
        the error, which the peer would take for that response.
        """
        self._all.report_refused(error, self.client[0] if self.client else LOCAL_PEER, self.loop.time())
        cycle: RequestResponseCycle | None = self.cycle
        if self._is_in_body:
            is_due = bool(self.pipeline) or self.cycle.response_started
        else:
            is_due = cycle is not None and not cycle.response_complete
        if is_due:
            self.abort()
        else:
            self._refuse(error)

    def announce_end(self) -> None:
        """Mark the response in progress as the last of this connection, unless it has begun already."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_started:
            cycle.keep_alive = False

    def close_slow(self) -> None:
        """Close a connection that is late. The peer gets an error if it has begun a request head.

        A peer that has sent nothing gets no response, since it may be about to send its request elsewhere. The
        application has a time limit of its own for a body that it reads.
        """
        if self.transport.is_closing():
            self.abort()
        elif self._head_begun:
            self._refuse(InvalidRequest("head_too_slow", status=408))
        elif self._lingers or not self._is_in_body:
            self._close()

    def abort(self) -> None:
        self._all.forget(self)
        self.transport.abort()

    def _await_request(self) -> None:
        self._all.awaiting_request.pop(self, None)
        self._all.awaiting_request[self] = self.loop.time()

    def _await_reading(self) -> None:
        self._all.awaiting_reader.setdefault(self, self.loop.time())

    def _refuse(self, error: OAuthError) -> None:
        refusal = render_refusal(error)
        headers = [(name.lower().encode(), value.encode()) for name, value in refusal.headers.items()]
        headers += [(b"content-length", b"%d" % len(refusal.body)), (b"connection", b"close")]
        lines = [b"%b: %b\r\n" % header for header in (*self.server_state.default_headers, *headers)]
        self.transport.write(b"".join([STATUS_LINE[refusal.status], *lines, b"\r\n", refusal.body]))
        self._close()

    def _close(self) -> None:
        self._all.forget(self)
        self._await_reading()
        self._is_in_body = False
        self.transport.close()
