"""The cycle of one request and its response, which writes a response's head with the beginning of its body.

It replaces uvicorn's `send`, which writes head and body apart and searches each name and each value of a header with a
regular expression. Together with the callbacks in uvicorn_protocol.py it saved a seventh of the processor time of a
verification. tests/serving/test_answers.py holds the bytes on the wire equal to those of uvicorn.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

_HEADER_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
"""A name in lower case, as the ASGI specification requires it."""

_CONTROLS: Final = bytes(code for code in range(0x20) if code != ord("\t")) + b"\x7f"
"""The bytes that no header value may contain, CR and LF among them."""

_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"connection"})
_STATUSES_WITHOUT_BODY: Final = (204, 304)
_MAX_PLAIN_NAMES: Final = 1_000

_plain_names: set[bytes] = set()
"""Header names that were checked and are not in _FRAMING. The code of the application contains them all."""


class RequestCycle(RequestResponseCycle):
    """A request and its response. `send` holds the head of the response back until a part of the body or the end."""

    # The values at the start of each request. Attributes of the class save their assignments.
    disconnected = False
    more_body = True
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0
    waiting_for_100_continue = False
    _announces_close = False
    _head = b""

    def __init__(
        self,
        scope: Any,
        transport: asyncio.Transport,
        flow: FlowControl,
        logger: logging.Logger,
        default_headers: list[tuple[bytes, bytes]],
        keep_alive: bool,
        on_response: Callable[[], None],
    ) -> None:
        self.scope = scope
        self.transport = transport
        self.flow = flow
        self.logger = logger
        self.default_headers = default_headers
        self.keep_alive = keep_alive
        self.on_response = on_response
        self.message_event = asyncio.Event()
        self.body = bytearray()

    async def run_asgi(self, app: Any) -> None:
        """Run the application. If it fails before the response has begun, respond with status 500."""
        try:
            await app(self.scope, self.receive, self.send)
        except BaseException as error:
            self.logger.error("Exception in ASGI application\n", exc_info=error)
            await self._end_broken()
        else:
            if not self.response_complete and not self.disconnected:
                self.logger.error("ASGI callable returned without completing response.")
                await self._end_broken()
        finally:
            self.on_response = _do_nothing  # which ends the cycle of references

    async def _end_broken(self) -> None:
        if not self.response_started:
            await self.send_500_response()
        else:
            self._flush()
            self.transport.close()

    async def send(self, message: Any) -> None:
        """Take one message of the application.

        Raises RuntimeError for a message in the wrong order, for a malformed header, and for a body whose length
        differs from Content-Length.
        """
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.response_started:
            self._start(message)
        elif not self.response_complete:
            self._add_body(message)
        else:
            raise RuntimeError(f"{message['type']} was sent after the response was complete")

    def _start(self, message: Any) -> None:
        if message["type"] != "http.response.start":
            raise RuntimeError(f"{message['type']} was sent before http.response.start")
        self.response_started = True
        self.waiting_for_100_continue = False
        status = message["status"]
        parts = [STATUS_LINE[status]]
        self._add_headers(parts, (*self.default_headers, *message.get("headers", ())))
        if not self.keep_alive and not self._announces_close:
            parts.append(b"connection: close\r\n")
        if self.chunked_encoding is None and self.scope["method"] != "HEAD" and status not in _STATUSES_WITHOUT_BODY:
            self.chunked_encoding = True
            parts.append(b"transfer-encoding: chunked\r\n")
        parts.append(b"\r\n")
        self._head = b"".join(parts)

    def _add_headers(self, parts: list[bytes], headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Add the lines of the headers to `parts`. Raises RuntimeError for a malformed name or value."""
        values = []
        for name, value in headers:
            if name not in _plain_names:
                self._note_header(name, value)
            values.append(value)
            parts += name, b": ", value, b"\r\n"
        joined = b"".join(values)
        if len(joined.translate(None, _CONTROLS)) != len(joined):
            raise RuntimeError("a header has a value with control characters")

    def _note_header(self, name: bytes, value: bytes) -> None:
        """Check the name of a header, and note how the header frames the response."""
        if name not in _FRAMING:
            if not _HEADER_NAME.fullmatch(name):
                raise RuntimeError("a header has a malformed name")
            if len(_plain_names) < _MAX_PLAIN_NAMES:
                _plain_names.add(name)
        elif name == b"connection":
            if b"close" in (token.strip() for token in value.lower().split(b",")):
                self.keep_alive, self._announces_close = False, True
        elif name == b"content-length" and self.chunked_encoding is None:
            self.chunked_encoding, self.expected_content_length = False, int(value)
        elif name == b"transfer-encoding" and value.lower() == b"chunked":
            self.chunked_encoding, self.expected_content_length = True, 0

    def _add_body(self, message: Any) -> None:
        if message["type"] != "http.response.body":
            raise RuntimeError(f"{message['type']} was sent instead of http.response.body")
        body, more_body = message.get("body", b""), message.get("more_body", False)
        if self.scope["method"] == "HEAD":
            self.expected_content_length, body = 0, b""
        elif self.chunked_encoding:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more_body else b"0\r\n\r\n")
        elif len(body) > self.expected_content_length:
            raise RuntimeError("Response content longer than Content-Length")
        else:
            self.expected_content_length -= len(body)
        self._head, data = b"", self._head + body
        if data:
            self.transport.write(data)
        if not more_body:
            self._complete()

    def _complete(self) -> None:
        if self.expected_content_length:
            raise RuntimeError("Response content shorter than Content-Length")
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _flush(self) -> None:
        if self._head:
            self.transport.write(self._head)
            self._head = b""


def _do_nothing() -> None:
    pass
