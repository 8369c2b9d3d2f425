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

from redis.exceptions import ResponseError

from .clock import read_clock
from .connection import Command, NotSent, Wire, as_it_came, open_wire
from .deadline import StoreUnavailable, remaining_seconds
from .durability import Durability
from .managed_connection import CLOSED, Link
from .router import MOST_ATTEMPTS
from .slots import SlotWait, is_refused_for_now
from .topology import Topology, is_redirection
from .url import RedisUrl

RESERVE_SECONDS: Final = 0.3
"""Of the request's budget: the answer that nothing was confirmed must come within it."""

MOST_IDLE: Final = 16
"""Connections kept for each master; more are made as they are needed."""

LONGEST_IDLE_SECONDS: Final = 30.0
"""Firewalls forget connections that are silent for minutes, and tell nobody."""

MOST_LENT: Final = 64
"""Connections to each master that are lent at once.

A replica that is away must not cost all connections that Redis and the worker may have, nor hold up other masters.
"""


class Idle(NamedTuple):
    """A connection, and since when it is, by `read_clock`."""

    wire: Wire
    since: float


class Lent(NamedTuple):
    """A connection, that of the link beside which it was made, and the semaphore of its master."""

    wire: Wire
    checked: Wire
    room: asyncio.Semaphore


class Confirmations:
    """Lends connections for what must last. Make it in the event loop that uses it."""

    def __init__(self, url: RedisUrl, topology: Topology, durability: Durability) -> None:
        self.topology = topology
        self.durability = durability
        self._url = url
        self._idle: dict[Wire, list[Idle]] = {}
        self._rooms: WeakKeyDictionary[Link, asyncio.Semaphore] = WeakKeyDictionary()
        self._is_closed = False

    async def lend(self, link: Link) -> Lent:
        """Lend a connection to this master to one caller at a time. Callers wait where as many are lent as may be."""
        room = self._rooms.get(link) or self._rooms.setdefault(link, asyncio.Semaphore(MOST_LENT))
        await room.acquire()
        try:
            return await self._lend(link, room)
        except BaseException:
            room.release()
            raise

    async def _lend(self, link: Link, room: asyncio.Semaphore) -> Lent:
        """What is kept was made beside the link's own connection, whose server is looked at, and ends with that."""
        checked = await link.find_wire()
        for ended in [each for each in self._idle if each.lost.done()]:
            _close_all(self._idle.pop(ended))
        idle = self._idle.setdefault(checked, [])
        while idle:
            wire, since = idle.pop()
            if read_clock() > since + LONGEST_IDLE_SECONDS:
                wire.close("the connection is idle for too long")
            elif not wire.lost.done():
                return Lent(wire, checked, room)
        return Lent(await open_wire(self._url, link.node, "confirmations", beside=checked), checked, room)

    def take_back(self, lent: Lent, *, is_clean: bool) -> None:
        """`is_clean`: each of its commands was answered. Nobody knows what becomes of one that was given up."""
        lent.room.release()
        idle = self._idle.get(lent.checked, [])
        is_wanted = not self._is_closed and not lent.checked.lost.done() and len(idle) < MOST_IDLE
        if is_clean and is_wanted:
            self._idle.setdefault(lent.checked, idle).append(Idle(lent.wire, read_clock()))
        else:
            lent.wire.close("the connection is not kept")

    def close(self) -> None:
        """What is lent at this moment is closed when it is given back."""
        self._is_closed = True
        for idle in self._idle.values():
            _close_all(idle)
        self._idle.clear()


def _close_all(idle: Sequence[Idle]) -> None:
    for each in idle:
        each.wire.close(CLOSED)


class ConfirmedWork:
    """Scripts of one shard on one connection, and what confirms them all. End it, whatever came of it."""

    def __init__(self, confirmations: Confirmations, key: str, on_moving_slot: Callable[[], None]) -> None:
        self._confirmations = confirmations
        self._key = key
        self._lent: Lent | None = None
        self._on_moving_slot = on_moving_slot
        self._is_under_way = False

    async def ask(self, command: Command) -> Any:
        """Carried out once at most. Raises RedisError, OSError or StoreUnavailable.

        What is refused while the slot moves is sent again. The first command of this work waits without a connection,
        so that those who wait for one slot do not take the connections of all others.
        """
        wait = SlotWait(self._on_moving_slot)
        if self._lent is not None:
            return await self._send(self._lent.wire, command, wait)
        attempts = 0
        trouble: Exception | None = None
        link = await self._confirmations.topology.find(self._key)
        while attempts < MOST_ATTEMPTS:
            self._lent = await self._confirmations.lend(link)
            try:
                return await self._call(self._lent.wire, command)
            except NotSent as error:
                attempts, trouble = attempts + 1, error
                self._give_back()
            except ResponseError as error:
                if is_refused_for_now(error, follows_ask=False):
                    self._give_back()
                    await wait.pause(error)
                elif is_redirection(error):
                    attempts, trouble = attempts + 1, error
                    self._give_back()
                    await self._confirmations.topology.follow(str(error), link)
                else:
                    raise
            link = await self._confirmations.topology.find(self._key)
        raise StoreUnavailable(f"{MOST_ATTEMPTS} attempts, and none found the node of this key: {trouble}")

    async def confirm(self) -> None:
        """Raises StoreUnavailable where nobody confirms in time what was done."""
        assert self._lent is not None
        wire = self._lent.wire
        if self._confirmations.durability == "disk":
            await self._check_disk(wire)
            return
        milliseconds = max(1, round((remaining_seconds() - RESERVE_SECONDS) * 1000))
        if await self._call(wire, ("WAIT", 1, milliseconds)) < 1:
            raise StoreUnavailable(
                f"no replica has confirmed the change within {milliseconds} ms; it is made, and may be lost"
            )

    def end(self) -> None:
        if self._lent is not None:
            self._give_back()

    async def _send(self, wire: Wire, command: Command, wait: SlotWait) -> Any:
        while True:
            try:
                return await self._call(wire, command)
            except ResponseError as error:
                if not is_refused_for_now(error, follows_ask=False):
                    raise
                await wait.pause(error)

    async def _call(self, wire: Wire, command: Command) -> Any:
        self._is_under_way = True
        try:
            answer = await wire.send(command, as_it_came)
        except ResponseError:
            self._is_under_way = False
            raise
        self._is_under_way = False
        return answer

    async def _check_disk(self, wire: Wire) -> None:
        """With `appendfsync always` what was answered is on the disk; nothing else is."""
        names = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite")
        found = [(await self._call(wire, ("CONFIG", "GET", name))).get(name.encode()) for name in names]
        if found != [b"yes", b"always", b"no"]:
            raise StoreUnavailable(
                "TOKEN_SERVICE_DURABILITY=disk takes a Redis with appendonly yes, appendfsync always and "
                "no-appendfsync-on-rewrite no"
            )

    def _give_back(self) -> None:
        assert self._lent is not None
        lent, self._lent = self._lent, None
        self._confirmations.take_back(lent, is_clean=not self._is_under_way)
        self._is_under_way = False
