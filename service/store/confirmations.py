"""What an answer waits for where it is to be durable: a replica that has the change, or the disk.

Redis answers before its replicas have what it changed. WAIT waits for one of them, for all that its own connection
changed before, and holds up whatever else is sent on it. So scripts whose effect must last have a connection of their
own, and the question for the confirmation goes behind the last of them. As long as that connection lasts it is one and
the same server that did all of it.

For the disk nothing is asked but the server's configuration. WAITAOF would be the word (Redis 7.2, Valkey), but Valkey
9.1 with `appendfsync everysec` was seen to confirm what no fsync had written.
"""

from __future__ import annotations

from typing import Any, Final

from redis.exceptions import ResponseError

from service.store.deadline import StoreUnavailable, remaining_seconds
from service.store.durability import Durability
from service.store.links import CLOSED, Link
from service.store.redis_url import Node, RedisUrl
from service.store.topology import Topology, is_redirection
from service.store.wire import Command, NotSent, Wire, as_it_came, open_wire

RESERVE_SECONDS: Final = 0.3
"""Of the request's budget: the answer that nothing was confirmed must come within it."""

MOST_ATTEMPTS: Final = 5
MOST_IDLE: Final = 16
"""Connections kept for each master; more are made as they are needed."""


class Confirmations:
    """Lends connections for what must last. Make it in the event loop that uses it."""

    def __init__(self, url: RedisUrl, topology: Topology, durability: Durability) -> None:
        self.topology = topology
        self.durability = durability
        self._url = url
        self._idle: dict[Node | None, list[Wire]] = {}

    async def lend(self, link: Link) -> Wire:
        """To one at a time."""
        await link.find_wire()
        idle = self._idle.get(link.node, [])
        while idle:
            wire = idle.pop()
            if not wire.lost.done():
                return wire
        return await open_wire(self._url, link.node, "confirmations", lambda _: None, lambda: None)

    def take_back(self, wire: Wire, link: Link) -> None:
        """Only where each of its commands was answered."""
        idle = self._idle.setdefault(link.node, [])
        if len(idle) < MOST_IDLE:
            idle.append(wire)
        else:
            wire.close("more connections than are kept")

    def close(self) -> None:
        for wires in self._idle.values():
            for wire in wires:
                wire.close(CLOSED)
        self._idle.clear()


class ConfirmedWork:
    """Scripts of one shard on one connection, and what confirms them all. End it, whatever came of it."""

    def __init__(self, confirmations: Confirmations, key: str) -> None:
        self._confirmations = confirmations
        self._key = key
        self._lent: tuple[Link, Wire] | None = None
        self._is_asking = False
        self._is_under_way = False

    async def ask(self, command: Command) -> Any:
        """Carried out once at most. Raises RedisError, OSError or StoreUnavailable."""
        if self._lent is not None:
            return await self._send(self._lent[1], command)
        trouble: Exception | None = None
        link = await self._confirmations.topology.find(self._key)
        for _ in range(MOST_ATTEMPTS):
            self._lent = link, await self._confirmations.lend(link)
            try:
                return await self._send(self._lent[1], command)
            except NotSent as error:
                trouble = error
                self._give_back()
                link = await self._confirmations.topology.find(self._key)
            except ResponseError as error:
                if not is_redirection(error):
                    raise
                trouble = error
                self._give_back()
                asked = await self._confirmations.topology.follow(str(error), link)
                self._is_asking = asked is not None
                link = asked or await self._confirmations.topology.find(self._key)
        raise StoreUnavailable(f"{MOST_ATTEMPTS} attempts, and none found the node of this key: {trouble}")

    async def confirm(self) -> None:
        """Raises StoreUnavailable where nobody confirms in time what was done."""
        assert self._lent is not None
        wire = self._lent[1]
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

    async def _send(self, wire: Wire, command: Command) -> Any:
        if self._is_asking:
            await self._call(wire, ("ASKING",))
        return await self._call(wire, command)

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
        names = ("appendonly", "appendfsync")
        found = [(await self._call(wire, ("CONFIG", "GET", name))).get(name.encode()) for name in names]
        if found != [b"yes", b"always"]:
            raise StoreUnavailable(
                "TOKEN_SERVICE_DURABILITY=disk takes a Redis with appendonly yes, appendfsync always"
            )

    def _give_back(self) -> None:
        """What becomes of a command that was given up nobody knows, so nobody else gets this connection."""
        assert self._lent is not None
        link, wire = self._lent
        self._lent = None
        if self._is_under_way:
            wire.close("the connection was given up")
        else:
            self._confirmations.take_back(wire, link)
