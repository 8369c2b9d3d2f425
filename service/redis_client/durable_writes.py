"""What an answer waits for where it is to be durable: a replica that has the change, or the disk.

Redis answers before its replicas have what it changed. WAIT waits for one of them, for all that its own connection
changed before, and holds up whatever else is sent on it. So scripts whose effect must last have a connection of their
own, and the question for the confirmation goes behind the last of them. As long as that connection lasts it is one and
the same server that did all of it.

For the disk nothing is asked but the server's configuration. WAITAOF would be the word (Redis 7.2, Valkey), but Valkey
9.1 with `appendfsync everysec` was seen to confirm what no fsync had written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from .clock import read_clock
from .connection import (
    Command,
    Connection,
    decode_raw,
    open_connection,
)
from .deadline import StoreUnavailable, remaining_seconds
from .durability import Durability
from .errors import NotSent, ResponseError
from .managed_connection import CLOSED, ManagedConnection
from .router import MAX_ATTEMPTS
from .slots import SlotWait, is_refused_for_now
from .topology import Topology, is_redirection
from .url import RedisUrl

RESERVE_SECONDS: Final = 0.3
"""Of the request's budget: the answer that nothing was confirmed must come within it."""

MAX_IDLE: Final = 16
"""Connections kept for each master; more are made as they are needed."""

MAX_IDLE_SECONDS: Final = 30.0
"""Firewalls forget connections that are silent for minutes, and tell nobody."""

MAX_LEASED: Final = 64
"""Connections to each master that are lent at once.

A replica that is away must not cost all connections that Redis and the worker may have, nor hold up other masters.
"""


class Idle(NamedTuple):
    """A connection, and since when it is, by `read_clock`."""

    connection: Connection
    since: float


class Lease(NamedTuple):
    """A connection, that of the link beside which it was made, and the semaphore of its master."""

    connection: Connection
    checked: Connection
    room: asyncio.Semaphore


class ConfirmationPool:
    """Lends connections for what must last. Make it in the event loop that uses it."""

    def __init__(self, url: RedisUrl, topology: Topology, durability: Durability) -> None:
        self.topology = topology
        self.durability = durability
        self._url = url
        self._idle: dict[Connection, list[Idle]] = {}
        self._rooms: WeakKeyDictionary[ManagedConnection, asyncio.Semaphore] = WeakKeyDictionary()
        self._is_closed = False

    async def acquire(self, master: ManagedConnection) -> Lease:
        """Lend a connection to this master to one caller at a time. Callers wait where as many are lent as may be."""
        room = self._rooms.get(master) or self._rooms.setdefault(master, asyncio.Semaphore(MAX_LEASED))
        await room.acquire()
        try:
            return await self._acquire(master, room)
        except BaseException:
            room.release()
            raise

    async def _acquire(self, master: ManagedConnection, room: asyncio.Semaphore) -> Lease:
        """What is kept was made beside the link's own connection, whose server is looked at, and ends with that."""
        checked = await master.get_connection()
        for ended in [each for each in self._idle if each.lost.done()]:
            _close_all(self._idle.pop(ended))
        idle = self._idle.setdefault(checked, [])
        while idle:
            connection, since = idle.pop()
            if read_clock() > since + MAX_IDLE_SECONDS:
                connection.close("the connection is idle for too long")
            elif not connection.lost.done():
                return Lease(connection, checked, room)
        return Lease(await open_connection(self._url, master.node, "confirmations", beside=checked), checked, room)

    def release(self, lease: Lease, *, is_clean: bool) -> None:
        """`is_clean`: each of its commands was answered. Nobody knows what becomes of one that was given up."""
        lease.room.release()
        idle = self._idle.get(lease.checked, [])
        is_wanted = not self._is_closed and not lease.checked.lost.done() and len(idle) < MAX_IDLE
        if is_clean and is_wanted:
            self._idle.setdefault(lease.checked, idle).append(Idle(lease.connection, read_clock()))
        else:
            lease.connection.close("the connection is not kept")

    def close(self) -> None:
        """What is lent at this moment is closed when it is given back."""
        self._is_closed = True
        for idle in self._idle.values():
            _close_all(idle)
        self._idle.clear()


def _close_all(idle: Sequence[Idle]) -> None:
    for each in idle:
        each.connection.close(CLOSED)


class DurableWork:
    """Scripts of one shard on one connection, and what confirms them all. End it, whatever came of it."""

    def __init__(self, pool: ConfirmationPool, key: str, on_moving_slot: Callable[[], None]) -> None:
        self._pool = pool
        self._key = key
        self._lease: Lease | None = None
        self._on_moving_slot = on_moving_slot
        self._is_under_way = False

    async def ask(self, command: Command) -> Any:
        """Carried out once at most. Raises RedisError, OSError or StoreUnavailable.

        What is refused while the slot moves is sent again. The first command of this work waits without a connection,
        so that those who wait for one slot do not take the connections of all others.
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
                return await self._call(self._lease.connection, command)
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
        """Raises StoreUnavailable where nobody confirms in time what was done."""
        assert self._lease is not None
        connection = self._lease.connection
        if self._pool.durability == "disk":
            await self._check_disk(connection)
            return
        milliseconds = max(1, round((remaining_seconds() - RESERVE_SECONDS) * 1000))
        if await self._call(connection, ("WAIT", 1, milliseconds)) < 1:
            raise StoreUnavailable(
                f"no replica has confirmed the change within {milliseconds} ms; it is made, and may be lost"
            )

    def end(self) -> None:
        if self._lease is not None:
            self._give_back()

    async def _send(self, connection: Connection, command: Command, wait: SlotWait) -> Any:
        while True:
            try:
                return await self._call(connection, command)
            except ResponseError as error:
                if not is_refused_for_now(error, follows_ask=False):
                    raise
                await wait.pause(error)

    async def _call(self, connection: Connection, command: Command) -> Any:
        self._is_under_way = True
        try:
            answer = await connection.send(command, decode_raw)
        except ResponseError:
            self._is_under_way = False
            raise
        self._is_under_way = False
        return answer

    async def _check_disk(self, connection: Connection) -> None:
        """With `appendfsync always` what was answered is on the disk; nothing else is."""
        names = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite")
        found = [(await self._call(connection, ("CONFIG", "GET", name))).get(name.encode()) for name in names]
        if found != [b"yes", b"always", b"no"]:
            raise StoreUnavailable(
                "TOKEN_SERVICE_DURABILITY=disk takes a Redis with appendonly yes, appendfsync always and "
                "no-appendfsync-on-rewrite no"
            )

    def _give_back(self) -> None:
        assert self._lease is not None
        lease, self._lease = self._lease, None
        self._pool.release(lease, is_clean=not self._is_under_way)
        self._is_under_way = False
