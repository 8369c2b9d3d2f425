"""Asks the Sentinels where the master is. The connection to each of them is kept.

They are asked as nobody in particular; a Sentinel that demands a user or a password gets those of REDIS_URL.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from .connection import Connection, open_connection
from .deadline import StoreUnavailable
from .errors import ResponseError
from .managed_connection import CLOSED
from .staggered import ASK_PAUSE_SECONDS, ASK_SECONDS, NoneSucceeded, get_first
from .url import Node, RedisUrl

_DEMANDS: Final = ("NOAUTH", "NOPERM")
_DOWN: Final = frozenset({"s_down", "o_down", "disconnected"})


class Sentinels:
    def __init__(self, url: RedisUrl) -> None:
        self._name = url.master_name
        self._named = replace(url, db=0)
        self._unnamed = replace(url, db=0, username=None, password=None)
        self._nodes = list(url.nodes)
        self._demanding: set[Node] = set()
        self._wires: dict[Node, Connection] = {}
        self._asking = asyncio.Lock()

    async def get_master(self) -> Node:
        """Ask the Sentinel first that was the last to know. Raises StoreUnavailable where none knows."""
        attempts = [functools.partial(self._ask_or_drop, node) for node in self._nodes]
        try:
            async with self._asking, asyncio.timeout(ASK_SECONDS):
                node, master = await get_first(attempts, pause_seconds=ASK_PAUSE_SECONDS)
        except (NoneSucceeded, TimeoutError) as error:
            told = str(error) or f"no answer within {ASK_SECONDS:g} s"
            raise StoreUnavailable(f"none of the Sentinels answers and knows a master of this name: {told}") from error
        self._nodes.remove(node)
        self._nodes.insert(0, node)
        return master

    def close(self) -> None:
        for connection in self._wires.values():
            connection.close(CLOSED)
        self._wires.clear()

    async def _ask_or_drop(self, node: Node) -> tuple[Node, Node]:
        """Return the Sentinel and the master. A Sentinel that failed is connected anew the next time.

        So is one that has not answered since the last time. One that is a little slower than others is kept.
        """
        try:
            return node, await self._ask(node)
        except asyncio.CancelledError:
            connection = self._wires.get(node)
            if connection is not None and len(connection.pending) > 1:
                self._drop_connection(node)
            raise
        except Exception:
            self._drop_connection(node)
            raise

    async def _ask(self, node: Node) -> Node:
        try:
            masters = await (await self._get_connection(node)).call("SENTINEL", "MASTERS")
        except ResponseError as error:
            if self._named.password is None or node in self._demanding or not str(error).startswith(_DEMANDS):
                raise
            self._demanding.add(node)
            self._drop_connection(node)
            masters = await (await self._get_connection(node)).call("SENTINEL", "MASTERS")
        return _get_master_address(masters, self._name)

    async def _get_connection(self, node: Node) -> Connection:
        connection = self._wires.get(node)
        if connection is None or connection.lost.done():
            url = self._named if node in self._demanding else self._unnamed
            connection = self._wires[node] = await open_connection(url, node, "sentinels")
        return connection

    def _drop_connection(self, node: Node) -> None:
        connection = self._wires.pop(node, None)
        if connection is not None:
            connection.close("the Sentinel was given up")


def _get_master_address(masters: Sequence[Any], name: str | None) -> Node:
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
