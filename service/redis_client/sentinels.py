"""The lookup of the master's address at the Sentinels. The connection to each Sentinel is kept.

A connection to a Sentinel begins without authentication. If the Sentinel demands it, the user and the password of
REDIS_URL are used.
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
        self._connections: dict[Node, Connection] = {}
        self._asking = asyncio.Lock()

    async def get_master(self) -> Node:
        """Return the master's address. The Sentinel that answered last is asked first.

        Raises StoreUnavailable if no Sentinel knows the address.
        """
        attempts = [functools.partial(self._ask_or_drop, node) for node in self._nodes]
        try:
            async with self._asking, asyncio.timeout(ASK_SECONDS):
                node, master = await get_first(attempts, pause_seconds=ASK_PAUSE_SECONDS)
        except (NoneSucceeded, TimeoutError) as error:
            reason = str(error) or f"no answer within {ASK_SECONDS:g} s"
            raise StoreUnavailable(
                f"none of the Sentinels answers and knows a master of this name: {reason}"
            ) from error
        self._nodes.remove(node)
        self._nodes.insert(0, node)
        return master

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close(CLOSED)
        self._connections.clear()

    async def _ask_or_drop(self, node: Node) -> tuple[Node, Node]:
        """Return the address of the Sentinel and that of the master.

        The connection to a Sentinel that failed is closed, so that the next query opens a new one. A cancelled query
        closes the connection only if an earlier query is unanswered as well. A Sentinel that is a little slower than
        others keeps its connection.
        """
        try:
            return node, await self._ask(node)
        except asyncio.CancelledError:
            connection = self._connections.get(node)
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
        connection = self._connections.get(node)
        if connection is None or connection.lost.done():
            url = self._named if node in self._demanding else self._unnamed
            connection = self._connections[node] = await open_connection(url, node, "sentinels")
        return connection

    def _drop_connection(self, node: Node) -> None:
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close("the Sentinel was given up")


def _get_master_address(masters: Sequence[Any], name: str | None) -> Node:
    """Return the address of the master of this name, which must be up.

    Raises ValueError if there is no such master, and may raise another error for a malformed answer.
    """
    for fields in map(_read_fields, masters):
        flags = set(fields["flags"].split(","))
        if fields["name"] == name and "master" in flags and not flags & _DOWN:
            return fields["ip"], int(fields["port"])
    raise ValueError("no master of this name is up")


def _read_fields(fields: Mapping[bytes, bytes] | Sequence[bytes]) -> dict[str, str]:
    """Return the fields as text. `fields` is a map, or a list of names and values in turn."""
    pairs = fields.items() if isinstance(fields, Mapping) else zip(fields[::2], fields[1::2], strict=True)
    return {name.decode(): value.decode() for name, value in pairs}
