"""All HTTP connections of this process, and since when they have waited for their peers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from operator import itemgetter
from typing import Final, Protocol, runtime_checkable

from uvicorn.server import ServerState

from service.observability.logs import EventLog
from service.protocol.errors import OAuthError

HEAD_SECONDS: Final = 10.0
"""Time from the start of a connection, or from the first byte of a later request, until the request's head is whole."""

IDLE_SECONDS: Final = 5.0
UNREAD_SECONDS: Final = 10.0
REFUSED_REPORT_SECONDS: Final = 1.0

log = logging.getLogger("service.serving.connections")
_event_log = EventLog("service.serving.connections")


@runtime_checkable
class WaitingConnection(Protocol):
    """A connection that can be closed while it waits for its peer."""

    def close_slow(self) -> None:
        """Close a connection that is late, with an error if the peer has begun a request."""

    def abort(self) -> None:
        """Close the connection at once."""

    def announce_end(self) -> None:
        """Mark the response in progress as the last of this connection."""


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
        self.idle: dict[WaitingConnection, float] = {}
        self.awaiting_request: dict[WaitingConnection, float] = {}
        self.awaiting_reader: dict[WaitingConnection, float] = {}
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

    def forget(self, connection: WaitingConnection) -> None:
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
                "%d connections without a whole request were closed: more than %d were open",
                self._closed_for_room,
                self.most,
            )
            self._closed_for_room = 0

    def report_refused(self, error: OAuthError, address: str, now: float) -> None:
        """Log a request that was refused while it was read: at once, then at most one line a second with a count."""
        self._refused += 1
        if now - self._refused_reported_at >= REFUSED_REPORT_SECONDS:
            fields = {"status": error.status, "reason": error.reason, "address": address, "count": self._refused}
            _event_log.write(logging.WARNING, "request_refused_while_read", fields)
            self._refused, self._refused_reported_at = 0, now

    def announce_end(self) -> None:
        self.is_ending = True
        for connection in self.connections:
            if isinstance(connection, WaitingConnection):
                connection.announce_end()


def _late(waiting: dict[WaitingConnection, float], before: float) -> Iterator[WaitingConnection]:
    for connection, since in waiting.items():
        if since > before:
            return
        yield connection
