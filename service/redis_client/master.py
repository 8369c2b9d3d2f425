"""The two connections to one master: one for reads, and one for scripts and other writes.

Redis reads no more commands of a connection on which a write waits, as during CLIENT PAUSE WRITE and planned failovers.
Reads, and the heartbeats that keep cached answers valid, go on meanwhile on a connection of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from .managed_connection import CLOSED, Check, ManagedConnection
from .options import ConnectionOptions
from .url import Node

GetNode = Callable[[], Awaitable[Node | None]]


class Master:
    """The connections to one master. The one for writes is made at its first use, so a gateway has none.

    `get_node` and `check` are those of ManagedConnection.
    """

    def __init__(self, options: ConnectionOptions, get_node: GetNode, check: Check) -> None:
        self.reads = ManagedConnection(options, get_node, check)
        self._write_options = options._replace(name="writes", listener=None)
        self._get_node = get_node
        self._check = check
        self._writes: ManagedConnection | None = None
        self._is_closed = False

    @property
    def node(self) -> Node | None:
        """The address of the server. None means the unix socket of the URL, or that there was no connection yet."""
        return self.reads.node

    @property
    def writes(self) -> ManagedConnection:
        if self._writes is None:
            if self._is_closed:
                return self.reads  # which tells the caller that it is closed
            self._writes = ManagedConnection(self._write_options, self._get_node, self._check, is_for_reads=False)
            self._writes.node = self.node
        return self._writes

    def choose(self, *, is_read: bool) -> ManagedConnection:
        return self.reads if is_read else self.writes

    def follow(self, node: Node) -> None:
        """Close each connection to another server than this one, or end the pause before its next attempt."""
        for connection in self._list_connections():
            if connection.node != node:
                connection.disconnect("the Sentinels name another master")

    def skip_pause(self) -> None:
        """End the pauses before the next attempts to connect, if there are any."""
        for connection in self._list_connections():
            connection.skip_pause()

    async def drain(self) -> None:
        """Wait until all commands sent before are answered. Raises ConnectionLost if a connection ends first."""
        await asyncio.gather(*(connection.drain() for connection in self._list_connections()))

    async def close(self, why: str = CLOSED) -> None:
        self._is_closed = True
        await asyncio.gather(*(connection.close(why) for connection in self._list_connections()))

    def _list_connections(self) -> Iterator[ManagedConnection]:
        yield self.reads
        if self._writes is not None:
            yield self._writes
