"""An HTTP connection of uvicorn, with limits of time and size that uvicorn leaves to a proxy.

A peer has ten seconds to send the head of a request, and ten seconds to read a response. If too many connections are
open, the connection that has waited longest for a request is closed.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from collections import deque
from typing import Any, Final, NoReturn, cast

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, service_unavailable
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from service.protocol.error_response import render_refusal
from service.protocol.errors import InvalidRequest, OAuthError
from service.protocol.http_errors import HeadTooLarge, RequestTooLarge, RequestTooSlow
from service.protocol.parameters import MAX_FORM_BYTES
from service.serving.connections import Connections
from service.serving.parser_callbacks import ParserCallbacks, get_body_framing
from service.serving.request_cycle import RequestCycle
from service.web.request.headers import LOCAL_PEER
from service.web.request.state import BODY_IS_COMPLETE, HEAD_BYTES

MAX_UNFINISHED_HEAD_BYTES: Final = 72 * 1024
"""Limit for an incomplete request head. A complete head is limited by HeadLimit, which knows the client's address.

HeadLimit counts 64 KiB without the separators, so the limit here refuses no head that HeadLimit would accept.
"""

MAX_HEADERS: Final = 256
"""Limit of a request's headers, and of the trailers after its body. Each takes memory and a Python call."""

MAX_PATH_BYTES: Final = 4 * 1024
"""Limit of the bytes of a URL before its query. No path of ours is that long, and uvicorn decodes all of it."""

MAX_CHUNKS: Final = 256
"""Limit of the chunks of one body. A form of 64 KiB comes in a few, and each chunk takes three Python calls."""

MAX_OTHER_BYTES: Final = 320 * 1024
"""Limit of the bytes of a request other than its body: head, sizes and extensions of chunks, trailers.

One read returns up to 256 KiB, and it is unknown how many of these bytes belong to an earlier request.
"""

MAX_BODY_BYTES: Final = 16 * MAX_FORM_BYTES
"""Limit of a body that is read and dropped after a response, so that a caller which still sends can read a 413."""

MAX_PIPELINED: Final = 16
"""Limit of requests sent before an earlier one was answered. No proxy pipelines, and each request takes memory."""


class ReadingEnds(Exception):
    """Exception that ends reading, raised in a callback of the parser, which turns it into an HttpParserError."""


class HttpConnection(HttpToolsProtocol):
    """uvicorn's connection, which enters itself into Connections while it waits for its peer.

    It replaces uvicorn's callbacks of the parser, and uvicorn's timer for each idle time. Together with RequestCycle
    that saved a seventh of the processor time of a verification. tests/serving/test_answers.py holds responses equal.
    """

    _is_idle = False
    """True from a response until the next byte, unless a part of the next request has arrived already."""

    _head_begun = False
    _is_within = False
    _read_bytes = 0
    _other_bytes = 0
    """Bytes received since the read in which the request began, that read included, without the request's body."""

    _body_bytes = 0
    _chunks = 0
    _hosts = 0
    _body_framing = b""
    """Header lines that announce the body of a message which offers an upgrade; empty for other messages."""

    _reason: OAuthError | None = None
    """The refusal that ended reading, unless it is `request_malformed`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # Copies of attributes that every request uses several times, which saves look-ups.
        self._all = cast("Connections", self.server_state)
        self._awaiting_request = self._all.awaiting_request
        self._unanswered: deque[RequestCycle] = deque()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._awaiting_request[self] = self.loop.time()
        self._all.evict_one()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._leave_unanswered()
        self._awaiting_request.pop(self, None)
        self._all.awaiting_reader.pop(self, None)

    def data_received(self, data: bytes) -> None:
        self._read_bytes = len(data)
        self._other_bytes += self._read_bytes
        self._is_idle = False
        self._feed(data)
        if self._is_within and self._other_bytes > MAX_UNFINISHED_HEAD_BYTES and not self.transport.is_closing():
            self._check_other_bytes()

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._end_reading(self._reason or InvalidRequest("request_malformed"))
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_behind_upgrade(data[upgrade.args[0] :])

    def _go_on_behind_upgrade(self, data: bytes) -> None:
        """Read on as if no upgrade had been offered, which RFC 9110 §7.8 permits.

        The parser ends a message with an upgrade after its head, even if the head announces a body. The body would then
        be read as the next request, which would be request smuggling. So another parser gets the header lines that
        announce the body, with muted callbacks, and reads on.
        """
        callbacks = ParserCallbacks(self)
        self.parser = httptools.HttpRequestParser(callbacks)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        if self._body_framing:
            callbacks.are_muted = True
            head, self._body_framing = b"POST / HTTP/1.1\r\n%b\r\n" % self._body_framing, b""
            try:
                self.parser.feed_data(head)
            except httptools.HttpParserError:  # a transfer coding that does not define where the body ends
                self._end_reading(InvalidRequest("request_malformed"))
                return
            callbacks.are_muted = False
        self._feed(data)

    def _should_upgrade(self) -> bool:
        return False

    def _check_other_bytes(self) -> None:
        """End reading if an unfinished request is too long: its head, or all of it without the body."""
        if self._head_begun:
            self._end_reading(HeadTooLarge("head_too_large"))
        elif self._other_bytes > MAX_OTHER_BYTES:
            self._end_reading(InvalidRequest("body_in_too_many_chunks"))

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._head_begun = self._is_within = True
        self._other_bytes = self._read_bytes
        self._body_bytes = self._chunks = self._hosts = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header. This callback runs most often."""
        name = name.lower()
        if name == b"host":
            self._hosts += 1
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))
        if len(self.headers) > MAX_HEADERS:
            self._stop(HeadTooLarge("headers_too_many"))

    def on_headers_complete(self) -> None:
        if len(self._unanswered) > MAX_PIPELINED:
            raise ReadingEnds
        if self._hosts != 1:
            self._check_hosts()
        version = self.parser.get_http_version()
        self.scope = self._make_scope(version)
        self._head_begun = False
        if self.parser.should_upgrade():
            self._body_framing = get_body_framing(self.headers)
        # A new list for the trailers of a chunked body, which the parser also reports. They must not be added to the
        # headers, which were judged already.
        self.headers = []
        keep_alive = version != "1.0" and self.parser.should_keep_alive() and not self._all.is_ending
        cycle = RequestCycle(
            self.scope,
            self.transport,
            self.flow,
            self.logger,
            self._all.default_headers,
            keep_alive,
            self._end_response,
        )
        if self.expect_100_continue:
            cycle.waiting_for_100_continue = True
        self.cycle = cycle
        self._awaiting_request.pop(self, None)
        self._unanswered.append(cycle)
        if len(self._unanswered) == 1:
            self._start_asgi_task(cycle, self._choose_app())
        else:
            self.flow.pause_reading()

    def _make_scope(self, version: str) -> Any:
        """Return the ASGI scope of the request whose headers have arrived."""
        if len(self.url) > MAX_PATH_BYTES and len(self.url.partition(b"?")[0]) > MAX_PATH_BYTES:
            self._stop(HeadTooLarge("path_too_long"))
        url = httptools.parse_url(self.url)
        if url.path is None:  # the address of a CONNECT request
            raise ReadingEnds
        path = url.path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": self.root_path,
            "method": self.parser.get_method().decode("ascii"),
            "path": self.root_path + (urllib.parse.unquote(path) if "%" in path else path),
            "raw_path": self.root_path.encode("ascii") + url.path,
            "query_string": url.query or b"",
            "headers": self.headers,
            "state": self.app_state.copy(),
            HEAD_BYTES.name: self._other_bytes,
        }

    def _choose_app(self) -> Any:
        """Return the application, or one that responds with 503 if more requests are in progress than are allowed."""
        most = self.limit_concurrency
        if most is not None and max(len(self.connections), len(self.tasks)) >= most:
            self.logger.warning("Exceeded concurrency limit.")
            return service_unavailable
        return self.app

    def _check_hosts(self) -> None:
        """Refuse a request with several Host headers, or with none in HTTP/1.1: 400 by RFC 9112 §3.2."""
        if self._hosts or self.parser.get_http_version() not in ("1.0", "0.9"):
            self._stop(InvalidRequest("host_not_one"))

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > MAX_CHUNKS:
            self._stop(InvalidRequest("body_in_too_many_chunks"))

    def on_body(self, body: bytes) -> None:
        size = len(body)
        self._other_bytes -= size
        self._body_bytes += size
        if self._body_bytes > MAX_BODY_BYTES:
            self._stop(RequestTooLarge("form_too_large"))
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self._body_framing:
            return  # only the head has ended: the message offers an upgrade, and its body follows
        self._is_within = False
        if not self.cycle.response_complete:
            self.cycle.more_body = False
            self.cycle.message_event.set()
        # Usually set before the application runs, since a short body arrives with its head.
        self.scope[BODY_IS_COMPLETE.name] = True  # type: ignore[literal-required]

    def _end_response(self) -> None:
        """Start the next request that has arrived already, or wait for one."""
        self._all.total_requests += 1
        if self._unanswered:
            self._unanswered.popleft()
        if self.transport.is_closing():
            self._await_reading()
            return
        self.flow.resume_reading()
        if self._unanswered:
            self._start_asgi_task(self._unanswered[0], self._choose_app())
        else:
            self._await_request()

    def _await_request(self) -> None:
        """Wait for the next request. One timer runs through many requests, since most are not idle for long."""
        self._awaiting_request[self] = self.loop.time()
        self._is_idle = not self._head_begun
        if self.timeout_keep_alive_task is None:
            self._start_idle_timer(self.timeout_keep_alive)

    def _start_idle_timer(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle for the whole time. The next response starts the timer of a busy one."""
        self.timeout_keep_alive_task = None
        since = self._awaiting_request.get(self)
        if since is None or not self._is_idle:
            return
        seconds_left = since + self.timeout_keep_alive - self.loop.time()
        if seconds_left > 0:
            self._start_idle_timer(seconds_left)
        else:
            self._close()

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
        is_in_body = self._is_within and not self._head_begun
        is_another_due = len(self._unanswered) > (1 if is_in_body else 0)
        if is_another_due or (is_in_body and self.cycle.response_started):
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

        A peer that has sent nothing gets no response, since it may be about to send its request elsewhere.
        """
        if self.transport.is_closing():
            self.abort()
        elif self._head_begun:
            self._refuse(RequestTooSlow("head_too_slow"))
        else:
            self._close()

    def abort(self) -> None:
        self._awaiting_request.pop(self, None)
        self._all.awaiting_reader.pop(self, None)
        self._leave_unanswered()
        self.transport.abort()

    def _await_reading(self) -> None:
        self._all.awaiting_reader.setdefault(self, self.loop.time())

    def _leave_unanswered(self) -> None:
        """Mark all unanswered requests as disconnected.

        uvicorn marks only the last one. The others would write to a closed connection.
        """
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
        self._awaiting_request.pop(self, None)
        self._await_reading()
        self._leave_unanswered()
        self.transport.close()
