"""The time of a lookup by the gateway's library, from its cache and from Redis."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

import redis.asyncio as redis

from benchmarks.load import CONNECTIONS
from benchmarks.processes import SERVER_CORE, on_core
from benchmarks.testbed import Testbed
from service.gateway import BearerLookup
from service.redis_client.connection import open_connection
from service.redis_client.url import parse_redis_url
from tests.support.clients_and_users import access_key_of

CACHED = "lookup, from memory"
CALLS_PER_ROUND = 100_000
CALLS = 8_000

Times = dict[str, list[float]]


def measure_lookups(testbed: Testbed, rounds: int) -> dict[str, float]:
    """Return the microseconds of each kind of call, as medians of the rounds. They run on the core of the servers."""
    ((token, _),) = testbed.start_sessions(1)
    with on_core(SERVER_CORE):
        times = asyncio.run(_measure_memory(token, testbed.deployment.redis.url, rounds))
        times |= asyncio.run(_measure_reads(token, testbed.deployment.redis.url, rounds))
    return {name: statistics.median(seconds) * 1e6 for name, seconds in times.items()}


async def _measure_memory(token: str, redis_url: str, rounds: int) -> Times:
    """Return the seconds of consecutive calls. An API makes one such call for each request."""
    times: Times = {CACHED: []}
    async with BearerLookup(redis_url) as bearer:
        for _ in range(2):  # a token is in the cache from its second use on
            assert await bearer.lookup(token)
        for _ in range(rounds):
            started = time.perf_counter()
            for _ in range(CALLS_PER_ROUND):
                await bearer.lookup(token)
            times[CACHED].append((time.perf_counter() - started) / CALLS_PER_ROUND)
            await asyncio.sleep(0)
        assert await bearer.lookup(token)
    return times


async def _measure_reads(token: str, redis_url: str, rounds: int) -> Times:
    """Return the seconds of a GET over the same kind of connection, of a lookup, and of a GET by redis-py.

    Each is measured alone and with many concurrent calls.
    """
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
        for concurrency in (1, CONNECTIONS):
            for _ in range(rounds):
                for name, call in calls.items():
                    times.setdefault(f"{name}, {concurrency} at once", []).append(await _time(call, concurrency))
    connection.close("measured")
    return times


async def _time(call: Callable[[], Awaitable[object]], concurrency: int) -> float:
    """Return the seconds of each of CALLS calls, with `concurrency` concurrent ones."""

    async def call_repeatedly() -> None:
        for _ in range(CALLS // concurrency):
            assert await call()

    started = time.perf_counter()
    await asyncio.gather(*(call_repeatedly() for _ in range(concurrency)))
    return (time.perf_counter() - started) / CALLS
