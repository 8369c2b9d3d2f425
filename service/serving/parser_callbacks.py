"""Reading on after an HTTP upgrade was offered and not taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class ParserCallbacks:
    """The callbacks of a connection, for a parser that reads bytes which the connection has seen already."""

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
    """Return the header lines that announce a body; empty where there is none."""
    lines = [
        b"%b: %b\r\n" % (name, value)
        for name, value in headers
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip(b" 0"))
    ]
    return b"".join(lines)
