"""The master and the connections to it: a single server, or the master that the Sentinels name.

A server that is no longer a master would return stale data, so each heartbeat of a connection checks that it is one.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Collection, Iterator
from contextlib import suppress
from contextvars import Context
from typing import Any, Final

from .deadline import ResponseError, StoreUnavailable, end_task
from .managed_connection import CLOSED, Check, ConnectionOptions, GetNode, ManagedConnection
from .url import Node


class Master:
    """The two connections to one master: one for reads, and one for scripts and other writes.

    Redis reads no more commands of a connection on which a write waits, as during CLIENT PAUSE WRITE and planned
    failovers. Reads, and the heartbeats that keep cached answers valid, go on meanwhile. The connection for writes is
    made at its first use, so a gateway has none.

    `get_node` and `check` are those of ManagedConnection.
    """

    def __init__(self, options: ConnectionOptions, get_node: GetNode, check: Check) -> None:
        self.reads = ManagedConnection(options, get_node, check)
        write_options = options._replace(name="writes", invalidate=None)
        self._make_writes = functools.partial(ManagedConnection, write_options, get_node, check)
        self._writes: ManagedConnection | None = None
        self._is_closed = False

    @property
    def node(self) -> Node | None:
        """The address of the server. None means the unix socket of the URL, or that none was tried yet."""
        return self.reads.node

    @property
    def writes(self) -> ManagedConnection:
        if self._writes is None:
            if self._is_closed:
                return self.reads  # which tells the caller that it is closed
            self._writes = self._make_writes()
            self._writes.node = self.node
        return self._writes

    def choose(self, *, is_read: bool) -> ManagedConnection:
        return self.reads if is_read else self.writes

    @property
    def is_up(self) -> bool:
        return any(connection.is_up for connection in self._list_connections())

    def follow(self, node: Node) -> None:
        """Close each connection to another server than this one."""
        for connection in self._list_connections():
            if connection.node != node:
                connection.disconnect("the Sentinels report a different master")

    async def close(self, why: str = CLOSED) -> None:
        self._is_closed = True
        await asyncio.gather(*(connection.close(why) for connection in self._list_connections()))

    def _list_connections(self) -> Iterator[ManagedConnection]:
        yield self.reads
        if self._writes is not None:
            yield self._writes


class SingleServerTopology:
    """One server, as long as it is a master: a replica may answer with stale data.

    It is the server of the URL, unless `get_node` returns another address.
    """

    def __init__(self, options: ConnectionOptions, get_node: GetNode | None = None) -> None:
        self._node = options.url.nodes[0] if options.url.path is None else None
        self._master = Master(options, get_node or self._get_node, CHECK_IS_MASTER)

    def list_known(self) -> Collection[Master]:
        """Return the masters that are known now."""
        return (self._master,)

    def find_connected(self, key: str, *, is_read: bool) -> ManagedConnection | None:
        """Return the connection to the key's master, or None if that is unknown or not connected."""
        connection = self._master.choose(is_read=is_read)
        return connection if connection.is_up else None

    async def find(self, key: str) -> Master:
        """Return the key's master. Raises StoreUnavailable if it is unknown."""
        return self._master

    async def list_masters(self) -> Collection[Master]:
        """Return all masters. Raises StoreUnavailable if they are unknown."""
        return (self._master,)

    async def list_promotable(self, node: Node | None) -> frozenset[str]:
        """Return the addresses of the replicas of this master that could be promoted, as far as they are known.

        Raises StoreUnavailable during a failover.
        """
        return frozenset()

    async def handle_redirection(self, redirection: str, master: Master) -> Master | None:
        raise StoreUnavailable(f"the server is part of a cluster, but REDIS_URL is for a single server: {redirection}")

    async def close(self) -> None:
        await self._master.close()

    async def _get_node(self) -> Node | None:
        return self._node


class SentinelTopology(SingleServerTopology):
    """The master that the Sentinels name.

    The Sentinels are asked before each connection. They are also asked once a second, and twice a second without a
    connection.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        from .sentinels import Sentinels  # imports redis-py

        self._sentinels = Sentinels(options.url)
        self._watch_seconds = options.watch_seconds
        super().__init__(options, self._sentinels.get_master)
        self._task = asyncio.create_task(self._watch(), context=Context())

    async def list_promotable(self, node: Node | None) -> frozenset[str]:
        return await self._sentinels.list_promotable(node)

    async def close(self) -> None:
        """Close all connections, those to the Sentinels last.

        Until then the task of the master's connection may still open one of them.
        """
        await end_task(self._task)
        await super().close()
        await self._sentinels.close()

    async def _watch(self) -> None:
        """Reconnect when the Sentinels report a different master, until cancelled or until the event loop ends."""
        try:
            while True:
                await asyncio.sleep(self._watch_seconds if self._master.reads.is_up else self._watch_seconds / 2)
                with suppress(Exception):  # while no master is known, the connections stay as they are
                    self._master.follow(await self._sentinels.get_master())
        finally:
            await self._sentinels.close()


def _check_role(answer: Any) -> None:
    if isinstance(answer, BaseException):
        raise answer
    if answer[b"role"] != b"master":
        raise ResponseError("this server is not the master")


CHECK_IS_MASTER: Final = Check(lambda: ("HELLO",), _check_role)
