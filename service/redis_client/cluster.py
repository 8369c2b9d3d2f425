"""The masters of a Redis Cluster: the map from slots to masters, and a connection to each."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import Collection, Sequence
from contextvars import Context
from typing import Any, Final, NamedTuple

from .availability import Availability
from .connection import (
    ASK_PAUSE_SECONDS,
    ASK_SECONDS,
    Command,
    Connection,
    NoneSucceeded,
    gather_answers,
    get_first,
    open_connection,
)
from .deadline import DEADLINE_SECONDS, ResponseError, StoreUnavailable, end_task, read_clock
from .managed_connection import CLOSED, Check, ConnectionOptions, ManagedConnection
from .slots import SLOTS, get_slot
from .topology import Master
from .url import Node

log: Final = logging.getLogger(__package__)

OLD_MAP_SECONDS: Final = 10.0
"""The time for which a map older than the one in use is refused.

Changes spread within seconds. A node that reports an older map after this time belongs to a cluster that was made anew.
"""

_REDIRECTION: Final = re.compile(r"(?P<word>MOVED|ASK) (?P<slot>[0-9]{1,5}) (?P<host>\S*):(?P<port>[0-9]{1,5})")

_EPOCH: Final = re.compile(rb"cluster_current_epoch:([0-9]{1,18})")


_Range = tuple[int, int, Node]
"""The first slot, the last slot, and the address of their master."""


def is_redirection(error: BaseException) -> bool:
    return isinstance(error, ResponseError) and str(error).startswith(("MOVED ", "ASK "))


class _Map(NamedTuple):
    """The masters of all slots, as one node reports them.

    `is_whole` means that the node considers the cluster able to serve. An old master that lost contact with the
    majority considers it unable. `epoch` grows with failovers and with most moves of slots.
    """

    ranges: tuple[_Range, ...]
    is_whole: bool
    epoch: int


class ClusterTopology:
    """The map from slots to masters. Nodes are asked for it once a second, and when one of them answers MOVED.

    Each heartbeat reads a key of its node, since a node that lost contact with the others, or its slots, still answers
    TIME.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options
        self._masters: dict[Node, Master] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._probes: dict[Node, Command] = {}
        self._ranges: tuple[_Range, ...] | None = None
        self._epoch = 0
        self._confirmed_at = 0.0
        self._by_slot: Availability[list[Master | None]] = Availability()
        self._turn = 0
        self._changing = asyncio.Lock()
        self._is_closed = False
        self._task = asyncio.create_task(self._run(), context=Context())

    def list_known(self) -> Collection[Master]:
        return self._masters.values()

    def find_connected(self, key: str, *, is_read: bool) -> ManagedConnection | None:
        by_slot = self._by_slot.value
        master = by_slot[get_slot(key)] if by_slot else None
        connection = master and master.choose(is_read=is_read)
        return connection if connection and connection.is_up else None

    async def list_masters(self) -> Collection[Master]:
        return {master for master in self._by_slot.value or await self._by_slot.get() if master is not None}

    async def list_promotable(self, node: Node | None) -> frozenset[str]:
        return frozenset()

    async def find(self, key: str) -> Master:
        by_slot = self._by_slot.value or await self._by_slot.get()
        master = by_slot[get_slot(key)]
        if master is None:
            raise StoreUnavailable("CLUSTERDOWN: no node serves the slot of this key")
        return master

    async def handle_redirection(self, redirection: str, master: Master) -> Master | None:
        """Handle `MOVED slot host:port` or `ASK slot host:port`. An empty host is that of the node that sent it.

        Returns the node to which to send the command once (ASKING), or None after MOVED, when the map is up to date.
        """
        match = _REDIRECTION.fullmatch(redirection)
        if match is None or int(match["slot"]) >= SLOTS:
            raise StoreUnavailable(f"invalid redirection: {redirection}")
        assert master.node is not None
        node = (_read_host(match["host"], master.node), int(match["port"]))
        if match["word"] == "ASK":
            return self._masters.get(node) or self._make_master(node)
        async with self._changing:
            by_slot = self._by_slot.value
            if by_slot is None or by_slot[int(match["slot"])] is not self._masters.get(node):
                await self._refresh(tuple(dict.fromkeys((node, *self._masters))))
        return None

    async def close(self) -> None:
        await end_task(self._task)
        async with self._changing:
            self._is_closed = True
            self._by_slot.end(CLOSED)
            retiring = [end_task(task) for task in self._retiring]
            await asyncio.gather(*retiring, *(master.close() for master in self._masters.values()))

    async def _run(self) -> None:
        watch_seconds = self._options.watch_seconds
        while True:
            self._turn += 1
            nodes = list(dict.fromkeys((*self._masters, *self._options.url.nodes)))
            turn = self._turn % len(nodes)
            try:
                async with self._changing:
                    await self._refresh((*nodes[turn:], *nodes[:turn]))
            except Exception as error:  # a mistake in our code must not stop this task either
                if self._by_slot.value is None and self._by_slot.fail(str(error)):
                    log.warning(str(error))
            await asyncio.sleep(watch_seconds if self._by_slot.value else watch_seconds / 2)

    async def _refresh(self, nodes: Sequence[Node]) -> None:
        """Use the first good map. The map of a node that is cut off from the others is used only if there is no other.

        Raises StoreUnavailable if there is no map at all.
        """
        of_the_lost: list[_Map] = []

        async def ask(node: Node) -> _Map:
            found = await self._read_map(node)
            if not found.ranges and self._ranges:
                raise ValueError(f"{node[0]}:{node[1]} serves no slots")  # the node left the cluster
            if found.epoch < self._epoch and read_clock() < self._confirmed_at + OLD_MAP_SECONDS:
                raise ValueError(f"{node[0]}:{node[1]} has an outdated view of the cluster")
            if not found.is_whole:
                of_the_lost.append(found)
                raise ValueError(f"{node[0]}:{node[1]} reports that the cluster is down")
            return found

        try:
            async with asyncio.timeout(ASK_SECONDS):
                attempts = [functools.partial(ask, node) for node in nodes]
                found = await get_first(attempts, pause_seconds=ASK_PAUSE_SECONDS)
        except (NoneSucceeded, TimeoutError) as error:
            if not of_the_lost:
                failure = str(error) or f"no response within {ASK_SECONDS:g} s"
                raise StoreUnavailable(f"no node of the cluster returned a usable slot map: {failure}") from error
            # The map in use is kept, since the map of a node that is cut off may be even older.
            self._apply(self._ranges or of_the_lost[0].ranges)
        else:
            self._epoch, self._confirmed_at = found.epoch, read_clock()
            self._apply(found.ranges)

    async def _read_map(self, node: Node) -> _Map:
        master = self._masters.get(node)
        if master is not None and master.reads.is_up:
            return await _ask_for_map(await master.reads.get_connection(), node)
        found: list[_Map] = []

        async def begin(connection: Connection) -> None:
            found.append(await _ask_for_map(connection, node))

        connection = await open_connection(self._options.url, node, self._options.name, begin=begin)
        connection.close("connection was used for the slot map only")
        return found[0]

    def _apply(self, ranges: tuple[_Range, ...]) -> None:
        """Use the map. The caches are emptied, because a new owner of a slot does not track what they contain."""
        if ranges == self._ranges:
            return
        self._ranges = ranges
        by_slot: list[Master | None] = [None] * SLOTS
        for first, last, node in ranges:
            by_slot[first : last + 1] = [self._masters.get(node) or self._make_master(node)] * (last + 1 - first)
        self._probes = {
            master.node: ("GET", key)
            for key in self._options.probe_keys
            if (master := by_slot[get_slot(key)]) and master.node
        }
        self._by_slot.set(by_slot)
        if self._options.invalidate is not None:
            self._options.invalidate(None)
        masters = {node for _, _, node in ranges}
        for node in self._masters.keys() - masters:
            retiring = asyncio.create_task(_retire(self._masters.pop(node)), context=Context())
            self._retiring.add(retiring)
            retiring.add_done_callback(self._retiring.discard)

    def _make_master(self, node: Node) -> Master:
        if self._is_closed:
            raise StoreUnavailable(CLOSED)

        async def get_node() -> Node:
            return node

        def check_probe(answer: Any) -> None:
            """Raise if the node cannot serve. After MOVED it has lost slots, so earlier answers are distrusted."""
            if isinstance(answer, BaseException):
                if not is_redirection(answer):
                    raise answer
                if str(answer).startswith("MOVED "):
                    master.reads.distrust()

        master = Master(self._options, get_node, Check(lambda: self._probes.get(node), check_probe))
        master.reads.node = node
        self._masters[node] = master
        return master


async def _retire(master: Master) -> None:
    """Close the connections to a node that no longer serves slots, once no command can be pending on them.

    Without a connection there are only commands that wait for one, and these are sent to another node at once.
    """
    try:
        await asyncio.sleep(DEADLINE_SECONDS if master.is_up else 0)
    finally:
        await master.close("this node no longer serves slots")


async def _ask_for_map(connection: Connection, node: Node) -> _Map:
    """Return the map that the node reports. Raises ValueError or another error if the answer is not a map."""
    questions = (("CLUSTER", "SLOTS"), ("CLUSTER", "INFO"))
    slots, info = await gather_answers([connection.send(question) for question in questions])
    epoch = _EPOCH.search(info)
    return _Map(_parse_ranges(slots, node), b"cluster_state:ok" in info, int(epoch[1]) if epoch else 0)


def _parse_ranges(answer: Sequence[Any], asked: Node) -> tuple[_Range, ...]:
    """Return the first slot, the last slot and the master's address of each range, sorted.

    A node may not know its own host; then the host that was asked is used. Raises ValueError or another error if the
    answer is not a map.
    """
    return tuple(sorted(_parse_range(first, last, host, port, asked) for first, last, (host, port, *_), *_ in answer))


def _parse_range(first: object, last: object, host: object, port: object, asked: Node) -> _Range:
    match first, last, host, port:
        case int(), int(), bytes() | None, int() if 0 <= first <= last < SLOTS:
            return first, last, (_read_host((host or b"").decode(), asked), port)
        case _:
            raise ValueError(f"no range of slots and its master: {first!r}, {last!r}, {host!r}, {port!r}")


def _read_host(host: str, asked: Node) -> str:
    """Return the host that a node reports, or the host that was asked if it is empty.

    Raises StoreUnavailable for `?`.
    """
    if host == "?":
        raise StoreUnavailable("a node of the cluster has no cluster-announce-hostname, but prefers host names")
    return host or asked[0]
