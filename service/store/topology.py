"""Where the masters are, and the link to each: one server, one that Sentinels name, or the nodes of a cluster.

A link to a server that is no master any more would go on telling old news, so that is checked with each beat.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Sequence
from contextvars import Context
from typing import Any, Final, NamedTuple, Protocol

from redis.crc import key_slot
from redis.exceptions import ReadOnlyError, ResponseError

from service.store.deadline import StoreUnavailable
from service.store.keys import access_key
from service.store.links import CLOSED, Current, Forget, Link, end_task
from service.store.redis_url import Node, RedisUrl
from service.store.sentinels import Sentinels
from service.store.wire import Wire, open_wire

SLOTS: Final = 16384
SHARDS: Final = 4096
WATCH_SECONDS: Final = 1.0
ASK_SECONDS: Final = 0.5

_REDIRECTION: Final = re.compile(r"(?P<word>MOVED|ASK) (?P<slot>[0-9]{1,5}) (?P<host>\S*):(?P<port>[0-9]{1,5})")

log = logging.getLogger("service.store")


def is_redirection(error: BaseException) -> bool:
    return isinstance(error, ResponseError) and str(error).startswith(("MOVED ", "ASK "))


class Topology(Protocol):
    def links(self) -> Collection[Link]: ...

    def find_now(self, key: str) -> Link | None:
        """The link to the master that serves this key, where it is known and up."""

    async def find(self, key: str) -> Link:
        """The link to the master that serves this key; raises StoreUnavailable where that is not known."""

    async def find_all(self) -> Collection[Link]:
        """The links to all masters; raises StoreUnavailable where those are not known."""

    async def follow(self, redirection: str, link: Link) -> Link | None:
        """What to do about a MOVED or ASK of this link: a link to ask once, or None when the map is right again."""

    async def close(self) -> None: ...


class _OneLink:
    """All keys lie on one server."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def links(self) -> Collection[Link]:
        return (self._link,)

    def find_now(self, key: str) -> Link | None:
        return self._link if self._link.is_up else None

    async def find(self, key: str) -> Link:
        return self._link

    async def find_all(self) -> Collection[Link]:
        return (self._link,)

    async def follow(self, redirection: str, link: Link) -> Link | None:
        raise StoreUnavailable(f"the server is part of a cluster, and REDIS_URL does not say so: {redirection}")

    async def close(self) -> None:
        await self._link.close()


class SingleServer(_OneLink):
    """The one of the URL, as long as it is a master: what a replica says may be old news."""

    def __init__(self, url: RedisUrl, purpose: str, forget: Forget, is_tracked: bool) -> None:
        self._node = url.nodes[0] if url.path is None else None
        super().__init__(
            Link(url, self._find_node, forget, purpose=purpose, is_tracked=is_tracked, check=_check_is_master)
        )

    async def _find_node(self) -> Node | None:
        return self._node


class WatchedMaster(_OneLink):
    """The master that the Sentinels name: asked before each connection, and once a second whether it is still so."""

    def __init__(self, url: RedisUrl, purpose: str, forget: Forget, is_tracked: bool) -> None:
        self._sentinels = Sentinels(url)
        super().__init__(
            Link(url, self._find_node, forget, purpose=purpose, is_tracked=is_tracked, check=_check_is_master)
        )
        self._task = asyncio.create_task(self._watch(), context=Context())

    async def close(self) -> None:
        """The Sentinels come last: the link's task may be making a connection to one of them."""
        await end_task(self._task)
        await super().close()
        self._sentinels.close()

    async def _find_node(self) -> Node:
        return await self._sentinels.find_master()

    async def _watch(self) -> None:
        """To the end of the event loop, if nobody closes it before."""
        try:
            while True:
                await asyncio.sleep(WATCH_SECONDS)
                try:
                    node = await self._find_node()
                except Exception as error:
                    log.debug("the Sentinels were asked in vain: %s", error)
                else:
                    if node != self._link.node:
                        self._link.leave("the Sentinels name another master")
        finally:
            self._sentinels.close()


async def _check_is_master(wire: Wire) -> None:
    server = await wire.call("HELLO")
    if server[b"role"] != b"master":
        raise ReadOnlyError("this server is not the master")


class _Range(NamedTuple):
    first: int
    last: int
    master: Node


class ClusterMap:
    """Which master serves which slots: asked of one node after the other, once a second and when one sends us away.

    Each link is probed with a key of its node, since a node that lost the others, or its slots, still tells the time.
    """

    def __init__(self, url: RedisUrl, purpose: str, forget: Forget, is_tracked: bool) -> None:
        self._url = url
        self._purpose = purpose
        self._forget = forget
        self._is_tracked = is_tracked
        self._links: dict[Node, Link] = {}
        self._probes: dict[Node, str] = {}
        self._ranges: tuple[_Range, ...] | None = None
        self._by_slot: Current[list[Link | None]] = Current()
        self._turn = 0
        self._changing = asyncio.Lock()
        self._is_closed = False
        self._task = asyncio.create_task(self._keep_up(), context=Context())

    def links(self) -> Collection[Link]:
        return self._links.values()

    def find_now(self, key: str) -> Link | None:
        by_slot = self._by_slot.value
        link = by_slot[key_slot(key.encode())] if by_slot else None
        return link if link and link.is_up else None

    async def find_all(self) -> Collection[Link]:
        return {link for link in self._by_slot.value or await self._by_slot.get() if link is not None}

    async def find(self, key: str) -> Link:
        by_slot = self._by_slot.value or await self._by_slot.get()
        link = by_slot[key_slot(key.encode())]
        if link is None:
            raise StoreUnavailable("CLUSTERDOWN: no node serves the slot of this key")
        return link

    async def follow(self, redirection: str, link: Link) -> Link | None:
        """`MOVED slot host:port` or `ASK slot host:port`; an empty host is that of the node that said so."""
        match = _REDIRECTION.fullmatch(redirection)
        if match is None or int(match["slot"]) >= SLOTS:
            raise StoreUnavailable(f"a redirection that nobody can read: {redirection}")
        node = (match["host"] or _host_of(link), int(match["port"]))
        if match["word"] == "ASK":
            return self._links.get(node) or self._make_link(node)
        async with self._changing:
            by_slot = self._by_slot.value
            if by_slot is None or by_slot[int(match["slot"])] is not self._links.get(node):
                try:
                    await self._refresh((node,))
                except (ValueError, TypeError) as error:
                    raise StoreUnavailable(f"a map of the cluster that nobody can read: {error}") from error
        return None

    async def close(self) -> None:
        await end_task(self._task)
        async with self._changing:
            self._is_closed = True
            self._by_slot.end(CLOSED)
            await asyncio.gather(*(link.close() for link in self._links.values()))

    async def _keep_up(self) -> None:
        while True:
            self._turn += 1
            nodes = [*self._links, *self._url.nodes]
            turn = self._turn % len(nodes)
            try:
                async with self._changing:
                    await self._refresh((*nodes[turn:], *nodes[:turn]))
            except Exception as error:
                trouble = f"no node of the cluster says who serves which slots: {type(error).__name__}: {error}"
                if self._by_slot.value is None and self._by_slot.fail(trouble):
                    log.warning(trouble)
            await asyncio.sleep(WATCH_SECONDS if self._by_slot.value else ASK_SECONDS)

    async def _refresh(self, nodes: Sequence[Node]) -> None:
        """Takes the first answer; that of a node which is cut off from the others only where nobody knows better.

        Raises the last node's error where no answer comes.
        """
        trouble: Exception | None = None
        of_the_lost: tuple[_Range, ...] | None = None
        for node in nodes:
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    ranges, is_whole = await self._read_map(node)
            except Exception as error:  # whatever it said: another node may know better
                trouble = error
                continue
            if not ranges and self._ranges:  # a node that belongs to the cluster no more
                trouble = ValueError(f"{node[0]}:{node[1]} knows of no slots")
            elif not is_whole:
                of_the_lost = of_the_lost or ranges
            else:
                await self._apply(ranges)
                return
        if of_the_lost is None:
            assert trouble is not None
            raise trouble
        # The map of before is no worse than what one of those says, which may be older still.
        await self._apply(self._ranges or of_the_lost)

    async def _read_map(self, node: Node) -> tuple[tuple[_Range, ...], bool]:
        """And whether the node thinks that the cluster is whole; an old master that lost the majority knows of that."""
        link = self._links.get(node)
        if link is not None and link.is_up:
            return await _ask_for_map(await link.find_wire(), node)
        wire = await open_wire(self._url, node, self._purpose, lambda _: None, lambda: None)
        try:
            return await _ask_for_map(wire, node)
        finally:
            wire.close("only asked for the map")

    async def _apply(self, ranges: tuple[_Range, ...]) -> None:
        """Whatever was remembered may have a new owner by now, who does not know that we remember it."""
        if ranges == self._ranges:
            return
        self._forget(None)
        self._ranges = ranges
        by_slot: list[Link | None] = [None] * SLOTS
        for first, last, node in ranges:
            by_slot[first : last + 1] = [self._links.get(node) or self._make_link(node)] * (last + 1 - first)
        self._probes = {
            link.node: key for key in _PROBE_KEYS if (link := by_slot[key_slot(key.encode())]) and link.node
        }
        self._by_slot.set(by_slot)
        masters = {node for _, _, node in ranges}
        removed = [self._links.pop(node) for node in self._links.keys() - masters]
        await asyncio.gather(*(link.close("this node serves no slots any more") for link in removed))

    def _make_link(self, node: Node) -> Link:
        if self._is_closed:
            raise StoreUnavailable(CLOSED)

        async def find_node() -> Node:
            return node

        async def check(wire: Wire) -> None:
            await self._probe(node, wire)

        link = Link(self._url, find_node, self._forget, purpose=self._purpose, is_tracked=self._is_tracked, check=check)
        link.node = node
        self._links[node] = link
        return link

    async def _probe(self, node: Node, wire: Wire) -> None:
        """A node that sends us elsewhere serves on, only not all that we think; one that cannot serve is left."""
        key = self._probes.get(node)
        if key is None:
            return
        try:
            await wire.call("GET", key)
        except ResponseError as error:
            if not is_redirection(error):
                raise
            self._forget(None)


_PROBE_KEYS: Final = tuple(access_key(f"{shard:03x}", "probe".ljust(22, "-")) for shard in range(SHARDS))
"""Of the form of all others, and of no token: no digest is spelled like that."""


async def _ask_for_map(wire: Wire, node: Node) -> tuple[tuple[_Range, ...], bool]:
    ranges = _parse_ranges(await wire.call("CLUSTER", "SLOTS"), node)
    return ranges, b"cluster_state:ok" in await wire.call("CLUSTER", "INFO")


def _parse_ranges(answer: Sequence[Any], asked: Node) -> tuple[_Range, ...]:
    """Of each range the first and last slot and the master's address; a node may not know its own.

    Raises ValueError, or another error, for what is no map.
    """
    return tuple(_parse_range(first, last, host, port, asked) for first, last, (host, port, *_), *_ in answer)


def _parse_range(first: object, last: object, host: object, port: object, asked: Node) -> _Range:
    match first, last, host, port:
        case int(), int(), bytes() | None, int() if 0 <= first <= last < SLOTS:
            return _Range(first, last, ((host or b"").decode() or asked[0], port))
        case _:
            raise ValueError(f"no range of slots and its master: {first!r}, {last!r}, {host!r}, {port!r}")


def _host_of(link: Link) -> str:
    assert link.node is not None
    return link.node[0]


TOPOLOGIES: Final[dict[str, type[SingleServer] | type[WatchedMaster] | type[ClusterMap]]] = {
    "single": SingleServer,
    "sentinel": WatchedMaster,
    "cluster": ClusterMap,
}
