"""Durable writes, which a replica or the disk confirms before they are answered.

Redis answers before its replicas have a change. WAIT waits until replicas have all changes that its own connection
made. It also delays every command that is sent after it on that connection. So scripts whose effect must last run on a
connection of their own, and WAIT follows the last of them. As long as that connection lasts, one and the same server
made all of these changes.

Every replica that could be promoted must confirm. During a failover the old master serves its other replicas for about
a second after one was promoted. The promoted one no longer follows it, so a change that it lacks is not confirmed. WAIT
only counts, so INFO tells who confirmed.

With `disk` only the server's configuration is checked. The command WAITAOF (Redis 7.2, Valkey) is not used:
Valkey 9.1 with `appendfsync everysec` was seen to confirm changes that no fsync had written.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from .connection import Command, Connection, open_connection
from .deadline import NotSent, ResponseError, StoreUnavailable, read_clock, remaining_seconds, within_deadline
from .managed_connection import CLOSED
from .router import Router
from .topology import Master
from .url import Durability, Node, RedisUrl

RESERVE_SECONDS: Final = 0.3
"""The part of the request's budget that is kept for answering that nothing was confirmed."""

MAX_IDLE_SECONDS: Final = 30.0
"""An idle connection is not used after this time. Firewalls drop silent connections after minutes, without notice."""

MAX_LEASED: Final = 64
"""The number of connections to each master that are leased at once.

An unreachable replica must not use up all connections that Redis and the worker may have. It must not delay other
masters either.
"""


LOOK_MS: Final = 10
"""The interval of the checks whether all replicas that could be promoted are among those that confirmed."""

_OFFSET: Final = re.compile(rb"master_repl_offset:([0-9]+)")
_REPLICA: Final = re.compile(rb"slave[0-9]+:ip=([^,]*),port=([0-9]+),state=online,offset=([0-9]+)")


class Lease(NamedTuple):
    """A leased connection to a master at `node`.

    `checked` is the health-checked connection of the same master at the time when `connection` was opened. The
    connection is idle since `since` by `read_clock`.
    """

    connection: Connection
    checked: Connection
    master: Master
    node: Node | None
    since: float = 0.0

    @property
    def is_usable(self) -> bool:
        is_recent = read_clock() <= self.since + MAX_IDLE_SECONDS
        return is_recent and not (self.connection.lost.done() or self.checked.lost.done() or self.connection.pending)


class ConfirmationPool:
    """The pool of connections for durable writes."""

    def __init__(self, url: RedisUrl, durability: Durability) -> None:
        self.durability = durability
        self._url = url
        self._idle: list[Lease] = []
        self._rooms: WeakKeyDictionary[Master, asyncio.Semaphore] = WeakKeyDictionary()
        self._is_closed = False

    async def acquire(self, master: Master) -> Lease:
        """Lease a connection to this master to one caller. Waits while MAX_LEASED connections to it are leased.

        An idle connection is used only if it was opened while the present health-checked connection was up.
        """
        room = self._rooms.setdefault(master, asyncio.Semaphore(MAX_LEASED))
        await room.acquire()
        try:
            checked = await master.reads.get_connection()
            node = master.node
            self._close_idle(lambda lease: not lease.is_usable)
            for lease in reversed(self._idle):
                if lease.checked is checked:
                    self._idle.remove(lease)
                    return lease
            connection = await open_connection(self._url, node, "confirmations", same_address_as=checked)
            return Lease(connection, checked, master, node)
        except BaseException:
            room.release()
            raise

    def release(self, lease: Lease) -> None:
        """Return the connection to the pool if each of its commands was answered.

        Any other connection is closed, since it is unknown what becomes of a command that was given up.
        """
        self._rooms[lease.master].release()
        kept = lease._replace(since=read_clock())
        if kept.is_usable and not self._is_closed:
            self._idle.append(kept)
        else:
            lease.connection.close("the connection is not kept")

    def close(self) -> None:
        """Close all idle connections. A leased connection is closed when it is released."""
        self._is_closed = True
        self._close_idle(lambda _: True)

    def _close_idle(self, is_unwanted: Callable[[Lease], bool]) -> None:
        for lease in [lease for lease in self._idle if is_unwanted(lease)]:
            self._idle.remove(lease)
            lease.connection.close(CLOSED)


class DurableWork:
    """The scripts of one shard on one connection, and their confirmation. Always call `end` afterwards."""

    def __init__(self, pool: ConfirmationPool, router: Router) -> None:
        self._pool = pool
        self._router = router
        self._topology = router.topology
        self._lease: Lease | None = None

    async def ask(self, key: str, command: Command, *, follows_ask: bool) -> Any:
        """Send a command, which runs once at most. ASK is not followed, since all of the work is done on one node.

        A command that is refused while its slot moves is sent again. The first command of this work waits without a
        connection, so that waits for one slot do not use up the connections for all others.
        """
        send = functools.partial(self._send, command)
        return await within_deadline(self._router.send_until_answered(self._topology, key, send, follows_ask=False))

    async def confirm(self) -> None:
        """Raise StoreUnavailable unless the changes are confirmed in time."""
        assert self._lease is not None
        connection, durability = self._lease.connection, self._pool.durability
        if durability.level == "disk":
            await self._check_disk(connection)
            return
        deadline = read_clock() + remaining_seconds() - RESERVE_SECONDS
        promotable = await self._topology.list_promotable(self._lease.node)
        needed, written = max(durability.min_replicas, len(promotable)), 0
        if promotable:
            [offset] = _OFFSET.findall(await connection.call("INFO", "replication"))
            written = int(offset)
        confirmed = await connection.call("WAIT", needed, max(1, round((deadline - read_clock()) * 1000)))
        if confirmed < needed:
            raise StoreUnavailable(
                f"only {confirmed} of {needed} replicas confirmed the change; it was applied but may be lost"
            )
        while promotable and not promotable <= _list_confirmed(await connection.call("INFO", "replication"), written):
            if read_clock() > deadline:
                raise StoreUnavailable(
                    "a promotable replica did not confirm the change; it was applied but may be lost"
                )
            # Redis asks the replicas for their offsets while a WAIT is not satisfied, so each WAIT asks for one more.
            confirmed = await connection.call("WAIT", confirmed + 1, LOOK_MS)

    def end(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            self._pool.release(lease)

    async def _send(self, command: Command, master: Master, _: bool) -> Any:
        if self._lease is not None:
            return await self._lease.connection.call(*command)
        self._lease = await self._pool.acquire(master)
        try:
            return await self._lease.connection.call(*command)
        except (NotSent, ResponseError):
            self.end()
            raise

    async def _check_disk(self, connection: Connection) -> None:
        """Raise StoreUnavailable unless the server has each change on the disk before it answers.

        Only `appendfsync always` guarantees that.
        """
        names = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite")
        found = [(await connection.call("CONFIG", "GET", name)).get(name.encode()) for name in names]
        if found != [b"yes", b"always", b"no"]:
            wanted = "appendonly yes, appendfsync always and no-appendfsync-on-rewrite no"
            raise StoreUnavailable(f"TOKEN_SERVICE_DURABILITY=disk requires {wanted}")


def _list_confirmed(info: bytes, written: int) -> set[str]:
    """Return the addresses (`ip:port`) of the replicas that have all changes up to this offset."""
    return {(ip + b":" + port).decode() for ip, port, offset in _REPLICA.findall(info) if int(offset) >= written}
