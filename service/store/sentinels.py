"""The Sentinels, who know where the master is. Each is asked over a connection that is kept.

They are asked as nobody in particular; a Sentinel that demands a user or a password gets those of REDIS_URL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from redis.exceptions import ResponseError

from service.store.deadline import StoreUnavailable
from service.store.links import CLOSED
from service.store.redis_url import Node, RedisUrl
from service.store.wire import Wire, open_wire

ASK_SECONDS: Final = 0.5

_DEMANDS: Final = ("NOAUTH", "NOPERM")
_DOWN: Final = frozenset({"s_down", "o_down", "disconnected"})


class Sentinels:
    def __init__(self, url: RedisUrl) -> None:
        self._name = url.master_name
        self._named = replace(url, db=0)
        self._unnamed = replace(url, db=0, username=None, password=None)
        self._nodes = list(url.nodes)
        self._demanding: set[Node] = set()
        self._wires: dict[Node, Wire] = {}
        self._asking = asyncio.Lock()

    async def find_master(self) -> Node:
        """Who was the last to know is asked first. Raises StoreUnavailable where none knows."""
        async with self._asking:
            return await self._find_master()

    async def _find_master(self) -> Node:
        troubles = []
        for node in tuple(self._nodes):
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    master = await self._ask(node)
            except Exception as error:  # whatever it said: another one may know better
                self._forget_wire(node)
                troubles.append(str(error) or f"no answer within {ASK_SECONDS} s")
            else:
                self._nodes.remove(node)
                self._nodes.insert(0, node)
                return master
        told = "; ".join(dict.fromkeys(troubles))
        raise StoreUnavailable(f"none of the Sentinels answers and knows a master of this name: {told}")

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close(CLOSED)
        self._wires.clear()

    async def _ask(self, node: Node) -> Node:
        try:
            masters = await (await self._find_wire(node)).call("SENTINEL", "MASTERS")
        except ResponseError as error:
            if self._named.password is None or node in self._demanding or not str(error).startswith(_DEMANDS):
                raise
            self._demanding.add(node)
            self._forget_wire(node)
            masters = await (await self._find_wire(node)).call("SENTINEL", "MASTERS")
        return _find_address(masters, self._name)

    async def _find_wire(self, node: Node) -> Wire:
        wire = self._wires.get(node)
        if wire is None or wire.lost.done():
            url = self._named if node in self._demanding else self._unnamed
            wire = self._wires[node] = await open_wire(url, node, "sentinels", lambda _: None, lambda: None)
        return wire

    def _forget_wire(self, node: Node) -> None:
        wire = self._wires.pop(node, None)
        if wire is not None:
            wire.close("the Sentinel was given up")


def _find_address(masters: Sequence[Any], name: str | None) -> Node:
    """Of the master of this name, where it is one and up; raises ValueError, or another error, for what is none."""
    for fields in map(_read_fields, masters):
        flags = set(fields["flags"].split(","))
        if fields["name"] == name and "master" in flags and not flags & _DOWN:
            return fields["ip"], int(fields["port"])
    raise ValueError("no master of this name is up")


def _read_fields(fields: Mapping[bytes, bytes] | Sequence[bytes]) -> dict[str, str]:
    """A map, or its names and values in turn."""
    pairs = fields.items() if isinstance(fields, Mapping) else zip(fields[::2], fields[1::2], strict=True)
    return {name.decode(): value.decode() for name, value in pairs}
