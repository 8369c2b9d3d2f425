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
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from .clock import read_clock
from .connection import Command, Connection, open_connection
from .deadline import StoreUnavailable, remaining_seconds
from .durability import Durability
from .errors import NotSent, ResponseError
from .managed_connection import CLOSED
from .master import Master
from .router import MAX_ATTEMPTS
from .slots import SlotWait, is_refused_for_now
from .topology import Topology, is_redirection
from .url import Node, RedisUrl

RESERVE_SECONDS: Final = 0.3
"""The part of the request's budget that is kept for answering that nothing was confirmed."""

MAX_IDLE: Final = 16
"""The number of idle connections kept for each master. More are opened when they are needed."""

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


class Idle(NamedTuple):
    """An idle connection, and the time by `read_clock` since when it is idle."""

    connection: Connection
    since: float


class Lease(NamedTuple):
    """A leased connection to a master, with the semaphore and the address of that master.

    `checked` is the health-checked connection of the same master at the time when `connection` was opened.
    """

    connection: Connection
    checked: Connection
    room: asyncio.Semaphore
    node: Node | None


class ConfirmationPool:
    """The pool of connections for durable writes. Make it in the event loop that uses it."""

    def __init__(self, url: RedisUrl, topology: Topology, durability: Durability) -> None:
        self.topology = topology
        self.durability = durability
        self._url = url
        self._idle: dict[Connection, list[Idle]] = {}
        self._rooms: WeakKeyDictionary[Master, asyncio.Semaphore] = WeakKeyDictionary()
        self._is_closed = False

    async def acquire(self, master: Master) -> Lease:
        """Lease a connection to this master to one caller. Waits while MAX_LEASED connections to it are leased."""
        room = self._rooms.get(master) or self._rooms.setdefault(master, asyncio.Semaphore(MAX_LEASED))
        await room.acquire()
        try:
            return await self._acquire(master, room)
        except BaseException:
            room.release()
            raise

    async def _acquire(self, master: Master, room: asyncio.Semaphore) -> Lease:
        """Reuse an idle connection only if it was opened while the present health-checked connection was up.

        Otherwise open one.
        """
        checked = await master.reads.get_connection()
        node = master.node
        for ended in [each for each in self._idle if each.lost.done()]:
            _close_all(self._idle.pop(ended))
        idle = self._idle.setdefault(checked, [])
        while idle:
            connection, since = idle.pop()
            if read_clock() > since + MAX_IDLE_SECONDS:
                connection.close("the connection is idle for too long")
            elif not connection.lost.done():
                return Lease(connection, checked, room, node)
        connection = await open_connection(self._url, node, "confirmations", same_address_as=checked)
        return Lease(connection, checked, room, node)

    def release(self, lease: Lease) -> None:
        """Return the connection to the pool if each of its commands was answered.

        Any other connection is closed, since it is unknown what becomes of a command that was given up.
        """
        lease.room.release()
        idle = self._idle.get(lease.checked, [])
        is_clean = not lease.connection.lost.done() and not lease.connection.pending
        is_wanted = not self._is_closed and not lease.checked.lost.done() and len(idle) < MAX_IDLE
        if is_clean and is_wanted:
            self._idle.setdefault(lease.checked, idle).append(Idle(lease.connection, read_clock()))
        else:
            lease.connection.close("the connection is not kept")

    def close(self) -> None:
        """Close all idle connections. A leased connection is closed when it is released."""
        self._is_closed = True
        for idle in self._idle.values():
            _close_all(idle)
        self._idle.clear()


def _close_all(idle: Sequence[Idle]) -> None:
    for each in idle:
        each.connection.close(CLOSED)


class DurableWork:
    """The scripts of one shard on one connection, and their confirmation. Always call `end` afterwards."""

    def __init__(self, pool: ConfirmationPool, key: str, on_moving_slot: Callable[[], None]) -> None:
        self._pool = pool
        self._key = key
        self._lease: Lease | None = None
        self._on_moving_slot = on_moving_slot

    async def ask(self, command: Command) -> Any:
        """Send a command, which runs once at most. Raises RedisError, OSError or StoreUnavailable.

        A command that is refused while its slot moves is sent again. The first command of this work waits without a
        connection, so that waits for one slot do not use up the connections for all others.
        """
        wait = SlotWait(self._on_moving_slot)
        if self._lease is not None:
            return await self._send(self._lease.connection, command, wait)
        attempts = 0
        failure: Exception | None = None
        master = await self._pool.topology.find(self._key)
        while attempts < MAX_ATTEMPTS:
            self._lease = await self._pool.acquire(master)
            try:
                return await self._lease.connection.call(*command)
            except NotSent as error:
                attempts, failure = attempts + 1, error
                self._give_back()
            except ResponseError as error:
                if is_refused_for_now(error, follows_ask=False):
                    self._give_back()
                    await wait.pause(error)
                elif is_redirection(error):
                    attempts, failure = attempts + 1, error
                    self._give_back()
                    await self._pool.topology.handle_redirection(str(error), master)
                else:
                    raise
            master = await self._pool.topology.find(self._key)
        raise StoreUnavailable(f"{MAX_ATTEMPTS} attempts, and none found the node of this key: {failure}")

    async def confirm(self) -> None:
        """Raise StoreUnavailable unless the changes are confirmed in time."""
        assert self._lease is not None
        connection, durability = self._lease.connection, self._pool.durability
        if durability.level == "disk":
            await self._check_disk(connection)
            return
        deadline = read_clock() + remaining_seconds() - RESERVE_SECONDS
        promotable = await self._pool.topology.list_promotable(self._lease.node)
        needed, written = max(durability.min_replicas, len(promotable)), 0
        if promotable:
            written = _read_offset(await connection.call("INFO", "replication"))
        confirmed = await connection.call("WAIT", needed, _milliseconds_until(deadline))
        if confirmed < needed:
            raise StoreUnavailable(
                f"{confirmed} of {needed} replicas have confirmed the change; it is made, and may be lost"
            )
        while promotable and not promotable <= _list_confirmed(await connection.call("INFO", "replication"), written):
            if read_clock() > deadline:
                raise StoreUnavailable(
                    "a replica that could be promoted has not confirmed the change; it is made, and may be lost"
                )
            # Redis asks the replicas for their offsets while a WAIT is not satisfied, so each WAIT asks for one more.
            confirmed = await connection.call("WAIT", confirmed + 1, LOOK_MS)

    def end(self) -> None:
        if self._lease is not None:
            self._give_back()

    async def _send(self, connection: Connection, command: Command, wait: SlotWait) -> Any:
        while True:
            try:
                return await connection.call(*command)
            except ResponseError as error:
                if not is_refused_for_now(error, follows_ask=False):
                    raise
                await wait.pause(error)

    async def _check_disk(self, connection: Connection) -> None:
        """Raise StoreUnavailable unless the server has each change on the disk before it answers.

        Only `appendfsync always` guarantees that.
        """
        names = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite")
        found = [(await connection.call("CONFIG", "GET", name)).get(name.encode()) for name in names]
        if found != [b"yes", b"always", b"no"]:
            raise StoreUnavailable(
                "TOKEN_SERVICE_DURABILITY=disk takes a Redis with appendonly yes, appendfsync always and "
                "no-appendfsync-on-rewrite no"
            )

    def _give_back(self) -> None:
        assert self._lease is not None
        lease, self._lease = self._lease, None
        self._pool.release(lease)


def _milliseconds_until(deadline: float) -> int:
    return max(1, round((deadline - read_clock()) * 1000))


def _read_offset(info: bytes) -> int:
    found = _OFFSET.search(info)
    assert found is not None
    return int(found[1])


def _list_confirmed(info: bytes, written: int) -> set[str]:
    """Return the addresses (`ip:port`) of the replicas that have all changes up to this offset."""
    return {(ip + b":" + port).decode() for ip, port, offset in _REPLICA.findall(info) if int(offset) >= written}
