"""Event streams and websockets of an API, which end with their access token.

Clauses: RFC 6750 §3.1, SPEC §4.5
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from .lookup import BearerLookup

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

POLICY_VIOLATION: Final = 1008
GONE: Final = "the access token is no longer valid"
UNBUFFERED: Final = (b"x-accel-buffering", b"no")
"""The header by which nginx passes on each event at once. It would otherwise collect them, and send them together."""


def is_stream(headers: Iterable[tuple[bytes, bytes]], stream_types: Collection[str]) -> bool:
    return any(
        name.lower() == b"content-type" and value.decode("latin-1").partition(";")[0].strip().lower() in stream_types
        for name, value in headers
    )


class TokenEnded(Exception):
    """The token ended while work that it allowed was under way."""


class Stream:
    """A websocket, or a response that becomes a stream with its content type. Other responses are never cut.

    `receive` and `send` replace those of the server. At the end of the token, an application that waits in `receive`
    gets a disconnect, and any other is cancelled. The end of the stream is sent at once, since an application may be
    waiting for a thread, which cannot be cancelled.
    """

    def __init__(self, lookup: BearerLookup, token: str, receive: Receive, send: Send, *, is_websocket: bool) -> None:
        self._lookup = lookup
        self._token = token
        self._receive = receive
        self._send = send
        self._is_websocket = is_websocket
        self._has_ended = False
        self._watch: asyncio.Future[Any] | None = None
        self._timeouts: list[asyncio.Timeout] = []
        self._closing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the application in the block. The block ends with the token, and the stream is closed."""
        if self._is_websocket:
            self._begin_to_watch()
        try:
            with suppress(TokenEnded):
                async with self._until_token_ends():
                    yield
            if self._has_ended:
                await self._close()
        finally:
            self._end_watch()

    async def receive(self) -> Message:
        """Return the next message of a websocket."""
        try:
            async with self._until_token_ends():
                message = await self._receive()
        except TokenEnded:
            await self._close()
            return {"type": "websocket.disconnect", "code": POLICY_VIOLATION}
        if message["type"] == "websocket.disconnect":
            self._end_watch()
        return message

    async def send(self, message: Message) -> None:
        """Send a message. After the end of the token nothing is sent but the end of the stream.

        A websocket then raises OSError, as after a disconnect. The task of a response has been cancelled.
        """
        kind = message["type"]
        if self._has_ended:
            await self._close()
            await asyncio.sleep(0)  # the cancellation of this task may be due in the next turn of the event loop
            if kind != "websocket.close":
                raise OSError(GONE) if self._is_websocket else asyncio.CancelledError(GONE)
            return
        if kind == "http.response.start" and is_stream(message.get("headers", ()), self._lookup.stream_types):
            self._begin_to_watch()
            headers = list(message["headers"])
            if not any(name.lower() == UNBUFFERED[0] for name, _ in headers):
                message = {**message, "headers": [*headers, UNBUFFERED]}
        await self._send(message)
        is_last = kind == "http.response.body" and not message.get("more_body")
        if is_last or kind in ("websocket.close", "websocket.http.response.start"):
            self._end_watch()

    def _begin_to_watch(self) -> None:
        self._watch = self._lookup.watch(self._token)
        self._watch.add_done_callback(self._end_with_token)

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _end_with_token(self, ended: asyncio.Future[Any]) -> None:
        if ended is self._watch:
            self._has_ended = True
            if self._timeouts:
                self._timeouts[-1].reschedule(0)
            self._end_watch()
            self._closing = asyncio.get_running_loop().create_task(self._send_end())

    @asynccontextmanager
    async def _until_token_ends(self) -> AsyncIterator[None]:
        """Cancel the block when the token ends, and raise TokenEnded. Of several blocks the latest is cancelled."""
        if self._has_ended:
            raise TokenEnded
        timeout = asyncio.timeout(None)
        self._timeouts.append(timeout)
        try:
            async with timeout:
                yield
        except TimeoutError:
            if timeout.expired():
                raise TokenEnded from None
            raise
        finally:
            self._timeouts.remove(timeout)

    async def _send_end(self) -> None:
        close: Message = {"type": "websocket.close", "code": POLICY_VIOLATION}
        with suppress(Exception):  # servers differ in what they raise if the client has gone
            await self._send(close if self._is_websocket else {"type": "http.response.body", "body": b""})

    async def _close(self) -> None:
        if self._closing is not None:
            await asyncio.wait([self._closing])
