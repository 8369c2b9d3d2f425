"""The lookup of the master's address at the Sentinels, with redis-py. The connection to each Sentinel is kept.

A connection to a Sentinel begins without authentication. If the Sentinel demands it, the user and the password of
REDIS_URL are used. This module imports redis-py, so it is imported only if the URL names Sentinels.
"""

from __future__ import annotations

import asyncio
import functools
from contextvars import Context
from typing import Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError

from .deadline import StoreUnavailable
from .staggered import ASK_PAUSE_SECONDS, ASK_SECONDS, NoneSucceeded, get_first
from .url import Node, RedisUrl

_DOWN: Final = ("is_sdown", "is_odown", "is_disconnected")


class Sentinels:
    """The Sentinels of a URL. Each has one client of redis-py and at most one query at a time.

    redis-py closes a connection if a wait for its answer is cancelled. So a query runs in a task of its own. A caller
    that gives up leaves it running, and a later caller waits for the same query.
    """

    def __init__(self, url: RedisUrl) -> None:
        self._url = url
        self._nodes = list(url.nodes)
        self._clients = {node: _make_client(url, node) for node in url.nodes}
        self._demanding: set[Node] = set()
        self._queries: dict[Node, asyncio.Task[Node]] = {}
        self._asking = asyncio.Lock()

    async def get_master(self) -> Node:
        """Return the master's address. The Sentinel that answered last is asked first.

        Raises StoreUnavailable if no Sentinel knows the address.
        """
        attempts = [functools.partial(self._ask, node) for node in self._nodes]
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

    async def close(self) -> None:
        """Cancel the queries that are running, and close all connections. A later query connects again."""
        queries = list(self._queries.values())
        for query in queries:
            query.cancel()
        await asyncio.gather(*queries, return_exceptions=True)
        for client in self._clients.values():
            await client.aclose()

    async def _ask(self, node: Node) -> tuple[Node, Node]:
        """Return the address of the Sentinel and that of the master."""
        query = self._queries.get(node)
        if query is None or query.done():
            query = self._queries[node] = asyncio.create_task(self._query(node), context=Context())
            query.add_done_callback(_read_error)
        return node, await asyncio.shield(query)

    async def _query(self, node: Node) -> Node:
        try:
            masters = await self._clients[node].sentinel_masters()
        except (AuthenticationError, NoPermissionError):
            if self._url.password is None or node in self._demanding:
                raise
            self._demanding.add(node)
            await self._clients[node].aclose()
            self._clients[node] = _make_client(
                self._url, node, username=self._url.username, password=self._url.password
            )
            masters = await self._clients[node].sentinel_masters()
        assert isinstance(masters, dict)  # the form that redis-py gives to RESP2
        master = masters.get(self._url.master_name or "")
        if master is None or not master["is_master"] or any(master[state] for state in _DOWN):
            raise ValueError("no master of this name is up")
        return master["ip"], int(master["port"])


def _make_client(url: RedisUrl, node: Node, *, username: str | None = None, password: str | None = None) -> Redis:
    """Return a client that sends each query once, and waits no longer than `get_master` does.

    RESP2 without a client name needs no handshake, so an unauthenticated query takes one round trip.
    """
    return Redis(
        host=node[0],
        port=node[1],
        username=username,
        password=password,
        ssl=url.tls,
        protocol=2,
        decode_responses=True,
        driver_info=None,
        socket_timeout=ASK_SECONDS,
        socket_connect_timeout=ASK_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )


def _read_error(query: asyncio.Task[Node]) -> None:
    """Read the error of a query for which nobody waits any longer, so that asyncio does not warn of it."""
    if not query.cancelled():
        query.exception()
