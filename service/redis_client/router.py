"""Routing of commands to the masters that serve their keys: a single server, the Sentinels' master, or cluster nodes.

A worker has two connections to each master, for reads and for writes, shared by all its requests. They cost a fraction
of a pool that lends connections out. Answers may be cached until Redis invalidates them. Reads and invalidations come
over one connection, and `decode` is called at the answer's place in that stream. So no answer is cached after its
invalidation.

Redis tracks the key of a read only if CLIENT CACHING YES stands before that read (OPTIN). So all reads can share a
tracked connection, and those that no cache keeps cost the server no table entries.

A read whose connection ended is sent again. A command that changes something is not sent again, since it is unknown
whether it ran. The second run of a script must never be taken for a replay.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, TypeVar

from .cluster import ClusterTopology, is_redirection
from .connection import Command, gather_answers
from .deadline import (
    ConnectionLost,
    NotSent,
    ResponseError,
    StoreUnavailable,
    charge,
    remaining_seconds,
    with_own_budget,
    within_deadline,
)
from .managed_connection import MAX_SILENCE_SECONDS, ConnectionOptions, Invalidate, ManagedConnection
from .slots import is_refused_for_now, pause_for_slot
from .topology import Master, SentinelTopology, SingleServerTopology
from .url import Kind

MAX_ATTEMPTS: Final = 5

Topology = SingleServerTopology | ClusterTopology
_TOPOLOGIES: Final[dict[Kind, type[Topology]]] = {
    "single": SingleServerTopology,
    "sentinel": SentinelTopology,
    "cluster": ClusterTopology,
}

Value = TypeVar("Value")
Decoder = Callable[[ManagedConnection | None, Any], Value]
"""Converts an answer that was read on this connection. If the connection is None, the result must not be cached."""


def decode_raw_from(master: ManagedConnection | None, answer: Any) -> Any:
    return answer


class Router:
    """The router that several users share: requests, lookups and the registry. It connects at its first use.

    It serves one event loop at a time. The next event loop may use it once the one before has ended. The connections of
    an event loop are closed with it. Changed `options` apply from the next first use on. Their `invalidate` is set
    here: a connection tracks keys if there was a cache before the first use.
    """

    def __init__(self, options: ConnectionOptions, *, on_moving_slot: Callable[[], None] = lambda: None) -> None:
        self.options = options
        self._on_moving_slot = on_moving_slot
        self._caches: dict[bytes, Invalidate] = {}
        self._topology: Topology | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def listen(self, kind: str, invalidate: Invalidate) -> None:
        """Let a cache get the invalidations of one kind of key, the part before the first colon.

        Call this before the first use. Each kind may have one cache.
        """
        assert kind.encode() not in self._caches, kind
        self._caches[kind.encode()] = invalidate

    @property
    def topology(self) -> Topology:
        """The topology of this event loop, which is made at its first use.

        Raises RuntimeError in a thread while the event loop of another thread uses this.
        """
        loop = asyncio.get_running_loop()
        if self._topology is None or self._loop is not loop:
            self._topology = self._make_topology(loop)
            self._invalidate(None)
        return self._topology

    async def ask(
        self,
        key: str,
        command: Command,
        decode: Decoder[Value] = decode_raw_from,
        *,
        is_read: bool = False,
        is_tracked: bool = False,
        follows_ask: bool = True,
    ) -> Value:
        """Return the answer, converted by `decode`.

        Raises StoreUnavailable if no answer comes in time or Redis cannot serve. Only an answer with `is_tracked` may
        be cached until its invalidation. Tracking costs Redis memory for as long as the key lives. With `follows_ask`
        the command may run on the node that its slot is moving to.
        """
        started = time.monotonic()
        failure: Exception | None = None
        topology = self.topology
        connection = topology.find_connected(key, is_read=is_read)
        if connection is not None and remaining_seconds() > MAX_SILENCE_SECONDS:
            # A time limit for each call would cost more than the call. The heartbeat closes a silent connection.
            try:
                answer = await connection.send_if_connected(
                    command, functools.partial(decode, connection), is_tracked=is_tracked
                )
            except (ConnectionLost, ResponseError) as error:
                failure = error
            else:
                charge(started)
                return answer

        async def send(master: Master, asks_before: bool) -> Value:
            connection = master.choose(is_read=is_read)
            if asks_before:
                return decode(None, await connection.send_asking(command))
            return await connection.send(command, functools.partial(decode, connection), is_tracked=is_tracked)

        work = self.send_until_answered(
            topology, key, send, is_read=is_read, follows_ask=follows_ask, started=started, failure=failure
        )
        return await within_deadline(work, started=started)

    async def send_until_answered(
        self,
        topology: Topology,
        key: str,
        send: Callable[[Master, bool], Awaitable[Value]],
        *,
        is_read: bool = False,
        follows_ask: bool = True,
        started: float | None = None,
        failure: Exception | None = None,
    ) -> Value:
        """Send a command until it is answered, at most MAX_ATTEMPTS times. Refusals by a moving slot do not count.

        Only this method decides whether a command is sent again. `send` gets the master, and True if ASKING must
        precede the command. `failure` is the error of an earlier attempt, which was sent at `started` by the monotonic
        clock.
        """
        ends = (started or time.monotonic()) + remaining_seconds()
        master: Master | None = None
        target: Master | None = None
        attempts = 0
        while attempts < MAX_ATTEMPTS:
            if failure is not None:
                if is_refused_for_now(failure, follows_ask=follows_ask):
                    self._on_moving_slot()
                    await pause_for_slot(failure, ends)
                elif not _may_be_sent_again(failure, is_read):
                    raise failure
                else:
                    attempts += 1
                    target = None
                    if master is not None and is_redirection(failure):
                        target = await topology.handle_redirection(str(failure), master)
            master = target or await topology.find(key)
            try:
                return await send(master, target is not None)
            except (ConnectionLost, ResponseError) as error:
                failure = error
        raise StoreUnavailable(f"no node accepted this key after {MAX_ATTEMPTS} attempts: {failure}")

    async def ask_many(self, commands: Sequence[Command], *, is_read: bool) -> list[Any]:
        """Send commands at once. The second word of each is its key. Returns their answers."""
        work: list[Awaitable[Any]] = [
            with_own_budget(self.ask(str(command[1]), command, is_read=is_read)) for command in commands
        ]
        return await within_deadline(gather_answers(work))

    def serves(self, key: str, connection: ManagedConnection) -> bool:
        """Return True if this connection is the one on which the key is read now."""
        return self._topology is not None and self._topology.find_connected(key, is_read=True) is connection

    async def list_masters(self) -> Collection[Master]:
        """Return all masters. Raises StoreUnavailable if they are unknown."""
        return await within_deadline(self.topology.list_masters())

    def now_ms(self) -> int:
        """Return Redis time in ms since 1970. Raises StoreUnavailable before the first answered heartbeat."""
        for master in self._topology.list_known() if self._topology is not None else ():
            if (now_ms := master.reads.now_ms()) is not None:
                return now_ms
        raise StoreUnavailable("the Redis clock is not known yet")

    async def close(self) -> None:
        """Close the connections of this event loop. A later use would open new ones."""
        if self._topology is not None and self._loop is asyncio.get_running_loop():
            topology, self._topology = self._topology, None
            await topology.close()

    def _make_topology(self, loop: asyncio.AbstractEventLoop) -> Topology:
        # In a child that was forked, the event loop of the parent seems to run. The thread is the same.
        thread = threading.get_ident()
        if self._topology and self._loop and self._loop.is_running() and self._thread != thread:
            raise RuntimeError("another event loop uses these connections to Redis; make a lookup for each event loop")
        self._loop, self._thread = loop, thread
        options = self.options._replace(invalidate=self._invalidate if self._caches else None)
        return _TOPOLOGIES[options.url.kind](options)

    def _invalidate(self, keys: Sequence[bytes] | None) -> None:
        """Pass each key on to the cache of its kind, or None to every cache."""
        if keys is None:
            for invalidate in self._caches.values():
                invalidate(None)
            return
        for key in keys:
            invalidate_kind = self._caches.get(key.partition(b":")[0])
            if invalidate_kind is not None:
                invalidate_kind((key,))


def _may_be_sent_again(error: BaseException, is_read: bool) -> bool:
    """Return True if the command did not run, or if it is a read whose connection was lost."""
    return isinstance(error, NotSent) or (is_read and isinstance(error, ConnectionLost)) or is_redirection(error)
