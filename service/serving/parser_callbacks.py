"""Helpers of a connection that goes on with HTTP after an upgrade was offered and not taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class ParserCallbacks:
    """The callbacks of a connection for its next parser. Mute them while it reads bytes that are processed already."""

    def __init__(self, connection: HttpToolsProtocol) -> None:
        self._connection = connection
        self.are_muted = False

    def __getattr__(self, name: str) -> Callable[..., None]:
        callback: Callable[..., None] = getattr(self._connection, name)

        def call(*arguments: bytes) -> None:
            if not self.are_muted:
                callback(*arguments)

        return call


def get_body_framing(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the header lines that announce a body, or empty bytes if there is no body."""
    lines = [
        b"%b: %b\r\n" % (name, value)
        for name, value in headers
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip(b" 0"))
    ]
    return b"".join(lines)
