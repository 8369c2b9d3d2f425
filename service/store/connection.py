"""From REDIS_URL to commands: one deadline, no blind retries, one error for every kind of outage.

A command that changes something is sent once: the client library would by default send it again after a time-out, and
our own second run of a script must never be taken for a replay. Reads may be sent twice. All Redis work of one request
shares one deadline. A connection whose answer was not awaited to its end is closed by the library, never reused.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, TypeVar

from redis.asyncio import (
    BlockingConnectionPool,
    Redis,
    RedisCluster,
    Sentinel,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import Connection as PlainConnection
from redis.asyncio.lock import Lock
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import DataError, NoScriptError, RedisClusterException, RedisError, SlotNotCoveredError
from redis.maint_notifications import MaintNotificationsConfig

from service.store.redis_url import RedisUrl
from service.store.scripts import Script

DEADLINE_SECONDS: Final = 1.8
CONNECT_SECONDS: Final = 1.5
CONNECTIONS: Final = 64
LOCK_PAUSE_SECONDS: Final = 0.05

# What a Redis that is up says when it cannot serve, as the first word of its error or quoted by a script's error.
_OUTAGE: Final = re.compile(
    r"\b(OOM|READONLY|MISCONF|LOADING|BUSY|NOREPLICAS|CLUSTERDOWN|TRYAGAIN|MASTERDOWN|UNBLOCKED|NOPERM|NOSCRIPT)\b"
)
# What only a mistake in our own scripts or commands leads to.
_FAULT: Final = re.compile(r"user_script|unknown command|wrong number of arguments|same key slot|No way to dispatch")

log = logging.getLogger("service.store")

Result = TypeVar("Result")
Command = tuple[str | bytes | int | float, ...]
Master = dict[str, Any]
"""Where to send a command, as the client library has it."""
Watch = Callable[[str, float, bool], None]
"""Told of each call: its kind or script, how many seconds it took, and whether it came to nothing."""


class StoreUnavailable(Exception):
    """Redis did not answer in time, or answered that it cannot serve. Nothing is known about what it did."""


def watch_nothing(call: str, seconds: float, failed: bool) -> None:
    pass


class Budget:
    """The time that the Redis work of one request may still take."""

    __slots__ = ("remaining_seconds",)

    def __init__(self) -> None:
        self.remaining_seconds = DEADLINE_SECONDS


_budget: ContextVar[Budget | None] = ContextVar("budget", default=None)


def start_budget() -> None:
    """From here on, in this task, all calls share one deadline. Without it each call has one of its own."""
    _budget.set(Budget())


def remaining_seconds() -> float:
    """What the Redis work of this request may still take."""
    budget = _budget.get()
    return DEADLINE_SECONDS if budget is None else budget.remaining_seconds


async def within_deadline(work: Awaitable[Result], *, started: float | None = None) -> Result:
    """Waits for work on Redis as long as the request's budget lasts; raises StoreUnavailable for any outage.

    `started`, by the monotonic clock, is when an earlier part of the same work began, if there was one.
    """
    budget = _budget.get() or Budget()
    now = time.monotonic()
    if started is not None:
        budget.remaining_seconds -= now - started
    try:
        async with asyncio.timeout(budget.remaining_seconds):
            return await work
    except (TimeoutError, OSError, RedisError, RedisClusterException, SlotNotCoveredError) as error:
        raise translate(error) from error
    finally:
        budget.remaining_seconds -= time.monotonic() - now


def translate(error: Exception) -> Exception:
    """A fault in one of our own scripts or commands is no outage; everything else that Redis can do to us is."""
    # The library cuts off the first word of the errors that it knows, and keeps it beside the message.
    text = f"{getattr(error, 'status_code', None) or ''} {error}".strip()
    if isinstance(error, DataError) or (_FAULT.search(text) and not _OUTAGE.search(text)):
        return error
    if isinstance(error, TimeoutError) and not text:
        text = f"no answer within the {DEADLINE_SECONDS} s that the Redis work of a request may take"
    if isinstance(error, MasterNotFoundError):  # the library shows its own objects instead
        text = "none of the Sentinels answers and knows a master of this name"
    return StoreUnavailable(f"{type(error).__name__}: {text}")


class StoreLock:
    """Held by one at a time, and by nobody where its holder dies: it ends by itself unless it is renewed.

    `on_wait` hears once that somebody else holds it at the moment.
    """

    def __init__(self, lock: Lock, on_wait: Callable[[], object]) -> None:
        self._lock = lock
        self._on_wait = on_wait

    async def __aenter__(self) -> StoreLock:
        if not await within_deadline(self._lock.acquire(blocking=False)):
            self._on_wait()
            while not await within_deadline(self._lock.acquire(blocking=False)):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(LOCK_PAUSE_SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(StoreUnavailable):
            await within_deadline(self._lock.release())

    async def renew(self) -> None:
        """Raises StoreUnavailable where somebody else may hold it by now."""
        await within_deadline(self._lock.reacquire())


class _Clients(NamedTuple):
    reading: Any
    writing: Any


class StoreConnection:
    """The few ways in which the store speaks to Redis, the same for one server, Sentinel and Cluster.

    `clock_offset_ms` moves the clock of every script; only tests pass it.
    """

    def __init__(
        self, url: RedisUrl, *, clock_offset_ms: Callable[[], int] = lambda: 0, watch: Watch = watch_nothing
    ) -> None:
        self._reading, self._writing = _make_clients(url)
        self._watch = watch
        self._room = asyncio.Semaphore(CONNECTIONS)
        self.clock_offset_ms = clock_offset_ms

    async def read(self, *command: str | int) -> Any:
        """A command that changes nothing; sent a second time where the connection turns out to be gone."""
        return await self._send("read", self._reading.execute_command(*command))

    async def read_clock_ms(self) -> int:
        """The time by Redis, for people to read; what depends on it is decided in scripts."""
        answer = await self.read("TIME")
        seconds, microseconds = next(iter(answer.values())) if isinstance(answer, dict) else answer
        return int(seconds) * 1000 + int(microseconds) // 1000 + self.clock_offset_ms()

    async def write(self, *command: str | bytes | int) -> Any:
        return await self._send("write", self._writing.execute_command(*command))

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[str | int]) -> list[str | int]:
        """The script's verdict: a word, then what belongs to it; texts decoded."""
        answer = await self._send(script.name, self._run(script, keys, arguments))
        return [part.decode() if isinstance(part, bytes) else part for part in answer]

    async def _run(self, script: Script, keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
        parts = (len(keys), *keys, *arguments)
        try:
            return await self._writing.execute_command("EVALSHA", script.sha1, *parts)
        except NoScriptError:
            # Nothing ran: the server does not know the text (any more), so this time it comes along.
            return await self._writing.execute_command("EVAL", script.text, *parts)

    async def read_many(self, commands: Sequence[Command], master: Master | None = None) -> list[Any]:
        """Sent where the keys lie, or all to one master."""
        return await self._send_many("read_many", self._reading, commands, master or {})

    async def write_many(self, commands: Sequence[Command]) -> list[Any]:
        """All in one round trip per node, not as a transaction."""
        return await self._send_many("write_many", self._writing, commands, {})

    async def scan(self, pattern: str) -> AsyncIterator[list[str]]:
        """Batches of the keys that match, on every master; a key there throughout is seen at least once."""
        for master in await self.find_masters():
            async for batch in self._scan_node(pattern, **master):
                yield batch

    async def find_masters(self) -> list[Master]:
        if not isinstance(self._reading, RedisCluster):
            return [{}]
        await within_deadline(self._reading.initialize())
        return [{"target_nodes": node} for node in self._reading.get_primaries()]

    async def count_keys(self, master: Master) -> int:
        return _of_one_node(await self._send("read", self._reading.execute_command("DBSIZE", **master)))

    async def eviction_policies(self) -> set[str]:
        """The maxmemory-policy of each master; empty where this user may not read it."""
        sections = await self.find_info("memory")
        if not sections:
            log.warning("this Redis user may not read maxmemory-policy (INFO), so nobody checks that it is noeviction")
        return {section["maxmemory_policy"] for section in sections}

    async def find_info(self, section: str) -> list[dict[str, Any]]:
        """What each master tells of itself; empty where this user may not ask."""
        try:
            if not isinstance(self._reading, RedisCluster):
                return [await within_deadline(self._reading.info(section))]
            await within_deadline(self._reading.initialize())
            by_node = await within_deadline(self._reading.info(section, target_nodes=RedisCluster.PRIMARIES))
            return list(by_node.values()) if all(isinstance(told, dict) for told in by_node.values()) else [by_node]
        except StoreUnavailable as error:
            if "NOPERM" not in str(error):
                raise
            return []

    def make_lock(self, key: str, seconds: float, on_wait: Callable[[], object]) -> StoreLock:
        return StoreLock(Lock(self._writing, key, timeout=seconds), on_wait)

    async def close(self) -> None:
        for client in (self._reading, self._writing):
            await client.aclose()
            if not isinstance(client, RedisCluster) and isinstance(client.connection_pool, SentinelConnectionPool):
                await close_watchers(client.connection_pool.sentinel_manager)

    async def _send(self, call: str, work: Coroutine[Any, Any, Result]) -> Result:
        started = time.perf_counter()
        try:
            answer = await within_deadline(self._in_turn(work))
        except StoreUnavailable:
            self._watch(call, time.perf_counter() - started, True)
            raise
        self._watch(call, time.perf_counter() - started, False)
        return answer

    async def _in_turn(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Waits for a free connection: the pools of Sentinel and Cluster would refuse instead."""
        try:
            await self._room.acquire()
        except BaseException:
            work.close()
            raise
        try:
            return await work
        finally:
            self._room.release()

    async def _scan_node(self, pattern: str, **options: Any) -> AsyncIterator[list[str]]:
        cursor: int = 0
        while True:
            answer = await self._send("scan", self._reading.scan(cursor, match=pattern, count=1000, **options))
            position, keys = answer
            cursor = _of_one_node(position)
            yield [key.decode() for key in keys]
            if cursor == 0:
                return

    async def _send_many(self, call: str, client: Any, commands: Sequence[Command], master: Master) -> list[Any]:
        if not commands:
            return []
        pipeline = client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command, **master)
        answers: list[Any] = await self._send(call, pipeline.execute())
        return answers


def _of_one_node(answer: Any) -> int:
    """A cluster's client may say beside the number which node it is of."""
    number: int = next(iter(answer.values())) if isinstance(answer, dict) else answer
    return number


def _make_clients(url: RedisUrl) -> _Clients:
    make = {"single": _make_single, "sentinel": _make_sentinel, "cluster": _make_cluster}[url.kind]
    return _Clients(reading=make(url, 1), writing=make(url, 0))


def _common_options(url: RedisUrl, retries: int) -> dict[str, Any]:
    return {
        "username": url.username,
        "password": url.password,
        "socket_timeout": None,  # the deadline around every call is the time limit
        "socket_connect_timeout": CONNECT_SECONDS,
        "retry": Retry(NoBackoff(), retries),
        # With these on (the default) the library no longer looks whether a pooled connection is dead or dirty.
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
    }


def _make_single(url: RedisUrl, retries: int) -> Redis:
    options = _common_options(url, retries) | {"db": url.db}
    if url.path is not None:
        options |= {"connection_class": UnixDomainSocketConnection, "path": url.path}
    else:
        host, port = url.nodes[0]
        options |= {"connection_class": SSLConnection if url.tls else PlainConnection, "host": host, "port": port}
    return Redis.from_pool(BlockingConnectionPool(CONNECTIONS, DEADLINE_SECONDS, **options))


def make_watchers(url: RedisUrl, retries: int = 0) -> Sentinel:
    """The Sentinels of the URL, who know where the master is."""
    return Sentinel(  # type: ignore[no-untyped-call]
        url.nodes,
        sentinel_kwargs={
            "socket_connect_timeout": 0.5,
            "socket_timeout": 0.5,
            "retry": Retry(NoBackoff(), 0),
            "ssl": url.tls,
        },
        **_common_options(url, retries),
        ssl=url.tls,
        db=url.db,
        max_connections=CONNECTIONS,
    )


async def close_watchers(watchers: Sentinel) -> None:
    for watcher in watchers.sentinels:
        await watcher.aclose()


def _make_sentinel(url: RedisUrl, retries: int) -> Redis:
    master: Redis = make_watchers(url, retries).master_for(url.master_name or "")
    return master


def _make_cluster(url: RedisUrl, retries: int) -> RedisCluster:
    return RedisCluster(
        startup_nodes=[ClusterNode(host, port) for host, port in url.nodes],
        ssl=url.tls,
        max_connections=CONNECTIONS,
        **_common_options(url, retries),
    )
