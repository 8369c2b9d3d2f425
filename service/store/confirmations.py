"""What an answer waits for where it is to be durable: a replica that has the change, or the disk.

Redis answers before its replicas and its disk have what it changed. WAIT and WAITAOF wait for that, for all that their
own connection changed before, and hold up whatever else is sent on it. So what must last is sent on connections of its
own, and the question for the confirmation behind it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from redis.exceptions import ResponseError

from service.store.deadline import StoreUnavailable, remaining_seconds, within_deadline
from service.store.durability import Durability
from service.store.links import Link
from service.store.redis_url import Node, RedisUrl
from service.store.topology import Topology, is_redirection
from service.store.wire import Command, NotSent, Wire, as_it_came, open_wire

RESERVE_SECONDS: Final = 0.3
"""Of the request's budget: the answer that nothing was confirmed must come within it."""

MOST_ATTEMPTS: Final = 5
MOST_IDLE: Final = 16
"""Connections kept for each master; more are made as they are needed."""


class Confirmations:
    """Commands whose effect is confirmed before they are answered. Make it in the event loop that uses it."""

    def __init__(self, url: RedisUrl, topology: Topology, durability: Durability) -> None:
        self._url = url
        self._topology = topology
        self._durability = durability
        self._idle: dict[Node | None, list[Wire]] = {}

    async def ask(self, key: str, command: Command) -> Any:
        """Sent once. Raises StoreUnavailable also where it was carried out, but nobody confirmed that in time."""
        return await within_deadline(self._ask(key, command))

    def close(self) -> None:
        for wires in self._idle.values():
            for wire in wires:
                wire.close("the store is closed")
        self._idle.clear()

    async def _ask(self, key: str, command: Command) -> Any:
        trouble: Exception | None = None
        for _ in range(MOST_ATTEMPTS):
            link = await self._topology.find(key)
            try:
                async with self._lend(link) as wire:
                    return await self._confirm(wire, command)
            except NotSent as error:
                trouble = error
            except ResponseError as error:
                if not is_redirection(error):
                    raise
                trouble = error
                asked = await self._topology.follow(str(error), link)
                if asked is not None:
                    async with self._lend(asked) as wire:
                        asking = wire.send(("ASKING",), as_it_came)
                        answer = await self._confirm(wire, command)
                        await asking
                        return answer
        raise StoreUnavailable(f"{MOST_ATTEMPTS} attempts, and none found the node of this key: {trouble}")

    async def _confirm(self, wire: Wire, command: Command) -> Any:
        answer = await wire.call(*command)
        milliseconds = max(1, round((remaining_seconds() - RESERVE_SECONDS) * 1000))
        question: Command = ("WAIT", 1, milliseconds)
        if self._durability == "disk":
            question = ("WAITAOF", 1, 0, milliseconds)
        try:
            told = await wire.call(*question)
        except ResponseError as error:
            if "unknown command" not in str(error):
                raise
            await _check_syncs_always(wire)
            return answer
        if (told if self._durability == "replica" else told[0]) < 1:
            who = "no replica has" if self._durability == "replica" else "the append-only file has not"
            raise StoreUnavailable(f"{who} confirmed the change within {milliseconds} ms; it is made, and may be lost")
        return answer

    @contextlib.asynccontextmanager
    async def _lend(self, link: Link) -> AsyncIterator[Wire]:
        """To one at a time; what became of a connection that was not answered to its end nobody knows."""
        await link.find_wire()
        idle = self._idle.setdefault(link.node, [])
        while idle and idle[-1].lost.done():
            idle.pop()
        wire = idle.pop() if idle else await self._open(link.node)
        try:
            yield wire
        except ResponseError:
            _put_back(wire, idle)
            raise
        except BaseException:
            wire.close("the connection was given up")
            raise
        _put_back(wire, idle)

    async def _open(self, node: Node | None) -> Wire:
        return await open_wire(self._url, node, "confirmations", lambda _: None, lambda: None)


def _put_back(wire: Wire, idle: list[Wire]) -> None:
    if len(idle) < MOST_IDLE:
        idle.append(wire)
    else:
        wire.close("more connections than are kept")


async def _check_syncs_always(wire: Wire) -> None:
    """A server without WAITAOF (Redis before 7.2) answers after the disk has it only with `appendfsync always`."""
    found = [await wire.call("CONFIG", "GET", name) for name in ("appendonly", "appendfsync")]
    if found != [{b"appendonly": b"yes"}, {b"appendfsync": b"always"}]:
        raise StoreUnavailable("this server has neither WAITAOF nor appendonly yes and appendfsync always")
