"""What a lookup costs inside an API that uses the gateway's library: from its memory, and from Redis."""

from __future__ import annotations

import asyncio
import hashlib
import statistics
import time
from collections.abc import Awaitable, Callable

import redis.asyncio as redis

from benchmarks.arena import Arena
from benchmarks.load import CONNECTIONS
from benchmarks.processes import SERVER_CORE, on_core
from service.gateway import BearerLookup
from service.redis_client.connection import open_connection
from service.redis_client.url import parse_redis_url
from tests.support.clients_and_users import access_key_of

BARE, CACHED = "a SHA-256 and a dict", "lookup, from memory"
AT_A_TIME = 100_000
CALLS = 8_000

Times = dict[str, list[float]]


def measure_lookups(arena: Arena, rounds: int) -> dict[str, float]:
    """Microseconds for each of them, medians of so many rounds; on the core of the servers."""
    ((token, _),) = arena.start_sessions(1)
    with on_core(SERVER_CORE):
        times = asyncio.run(_measure_memory(token, arena.deployment.redis.url, rounds))
        times |= asyncio.run(_measure_reads(token, arena.deployment.redis.url, rounds))
    return {name: statistics.median(seconds) * 1e6 for name, seconds in times.items()}


async def _measure_memory(token: str, redis_url: str, rounds: int) -> Times:
    """Calls that follow one another, as an API makes one for each of its requests."""
    digests = {hashlib.sha256(token.encode()).digest(): token}
    times: Times = {BARE: [], CACHED: []}
    async with BearerLookup(redis_url) as bearer:
        for _ in range(2):  # it is remembered from its second use on
            assert await bearer.lookup(token)
        for _ in range(rounds):
            started = time.perf_counter()
            for _ in range(AT_A_TIME):
                digests.get(hashlib.sha256(token.encode()).digest())
            times[BARE].append((time.perf_counter() - started) / AT_A_TIME)
            started = time.perf_counter()
            for _ in range(AT_A_TIME):
                await bearer.lookup(token)
            times[CACHED].append((time.perf_counter() - started) / AT_A_TIME)
            await asyncio.sleep(0)
        assert await bearer.lookup(token)
    return times


async def _measure_reads(token: str, redis_url: str, rounds: int) -> Times:
    """One at a time, and many under way: a GET over the same kind of connection, a lookup, a GET by the library."""
    key = access_key_of(token)
    url = parse_redis_url(redis_url)
    connection = await open_connection(url, url.nodes[0], "benchmark")
    times: Times = {}
    async with BearerLookup(redis_url, memory=False) as bearer, redis.Redis.from_url(redis_url) as library:
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "GET, on a connection that all share": lambda: connection.call("GET", key),
            "lookup, Redis asked": lambda: bearer.lookup(token),
            "GET by redis-py": lambda: library.get(key),
        }
        for many in (1, CONNECTIONS):
            for _ in range(rounds):
                for name, call in calls.items():
                    times.setdefault(f"{name}, {many} at once", []).append(await _time(call, many))
    connection.close("measured")
    return times


async def _time(call: Callable[[], Awaitable[object]], many: int) -> float:
    """Seconds for each of some thousand calls, so many of them under way."""

    async def go_on() -> None:
        for _ in range(CALLS // many):
            assert await call()

    started = time.perf_counter()
    await asyncio.gather(*(go_on() for _ in range(many)))
    return (time.perf_counter() - started) / CALLS
