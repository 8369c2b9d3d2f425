"""The time until the cache of the gateway's library uses a promoted replica.

A token that is deleted at the new master must be refused, and all others must be live. The time counts from the
promotion. Behind Sentinels it counts from when all of them name the new master. The old master is killed, or continues
to answer.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import redis

from benchmarks.in_process import logging_to
from benchmarks.load import LoadFailed
from benchmarks.results import Rows
from service.config.settings import load_settings
from service.gateway import BearerLookup, StoreUnavailable
from service.worker import Worker
from tests.cluster.nodes import MASTER_NAME, Cluster, Shard, Watched, running_cluster, running_sentinel
from tests.conftest import environment_of
from tests.faults.deployment import start_sessions
from tests.support.clients_and_users import access_key_of
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

FOLLOWS = "gateway's library follows a replica that was promoted"
NOTIFIED = "gateway's library hears of the new master's news"
USERS = 12
PAUSE_SECONDS = 0.001


def measure_following(rounds: int) -> Rows:
    """Return seconds."""
    rows: Rows = {FOLLOWS: {}, NOTIFIED: {}}
    measurements: dict[str, Callable[[Path], tuple[float, float]]] = {
        "cluster, the old one lives": _measure_cluster,
        "Sentinel, the old one lives": lambda folder: _measure_sentinel(folder, _fail_over),
        "Sentinel, the old one is killed": lambda folder: _measure_sentinel(folder, Shard.kill_master),
    }
    for _ in range(rounds):
        for name, measure in measurements.items():
            with tempfile.TemporaryDirectory() as folder, logging_to(Path(folder) / "lookups.log"):
                follows, notified = measure(Path(folder))
            rows[FOLLOWS].setdefault(name, []).append(follows)
            rows[NOTIFIED].setdefault(name, []).append(notified)
    return rows


def _measure_cluster(folder: Path) -> tuple[float, float]:
    def promote(shard: Shard) -> None:
        with shard.replica.connect() as replica:
            wait_until(lambda: _is_accepted(replica, "FAILOVER"), "the failover to begin")

    with running_cluster(folder, replicas=1) as cluster:
        return asyncio.run(_measure(cluster, cluster.shards[0], promote, lambda key: cluster.node_of(key) == 0))


def _measure_sentinel(folder: Path, promote: Callable[[Watched], None]) -> tuple[float, float]:
    with running_sentinel(folder) as watched:
        return asyncio.run(_measure(watched, watched, lambda _: promote(watched), lambda _: True))


def _fail_over(watched: Watched) -> None:
    with redis.Redis(port=watched.sentinel_port) as sentinel:
        sentinel.sentinel_failover(MASTER_NAME)


def _is_accepted(node: redis.Redis, *command: str) -> bool:
    try:
        node.execute_command("CLUSTER", *command)  # type: ignore[no-untyped-call]
    except redis.ResponseError:
        return False
    return True


async def _measure(
    store: Cluster | Watched, shard: Shard, promote: Callable[[Shard], None], is_in_shard: Callable[[str], bool]
) -> tuple[float, float]:
    """Return both times in seconds. `is_in_shard` returns True for a key of the shard that gets another master."""
    async with _cached_tokens(store, is_in_shard) as (bearer, tokens):
        await asyncio.to_thread(shard.wait_until_copied)
        promote(shard)
        await asyncio.to_thread(shard.wait_for_promotion)
        with shard.master.connect() as master:
            master.delete(access_key_of(tokens[0]))
        if isinstance(shard, Watched):
            await asyncio.to_thread(shard.wait_until_named)
        began = time.perf_counter()
        await _until(bearer, tokens[0], is_live=False)
        for token in tokens[1:]:
            await _until(bearer, token, is_live=True)
        followed = time.perf_counter()
        with shard.master.connect() as master:
            master.delete(access_key_of(tokens[1]))
        deleted = time.perf_counter()
        await _until(bearer, tokens[1], is_live=False)
        return followed - began, time.perf_counter() - deleted


@asynccontextmanager
async def _cached_tokens(
    store: Cluster | Watched, is_in_shard: Callable[[str], bool]
) -> AsyncIterator[tuple[BearerLookup, Sequence[str]]]:
    """Yield a lookup and access tokens of the shard, all in its cache. A token is cached from its second use on."""
    worker = Worker(load_settings(environment_of(store)))
    sessions = [(await start_sessions(worker, f"user {number}", 2)) for number in range(USERS)]
    await worker.close()
    tokens = [token for user_sessions in sessions for token, _ in user_sessions if is_in_shard(access_key_of(token))]
    async with BearerLookup(store.url) as bearer:
        for token in tokens * 2:
            if await bearer.lookup(token) is None:
                raise LoadFailed("a token is not live")
        yield bearer, tokens


async def _until(bearer: BearerLookup, token: str, *, is_live: bool) -> None:
    """Look the token up until it is live, or refused. Errors are ignored until then."""
    deadline = time.perf_counter() + MAX_WAIT_SECONDS
    while time.perf_counter() < deadline:
        try:
            if (await bearer.lookup(token) is not None) == is_live:
                return
        except StoreUnavailable:
            pass
        await asyncio.sleep(PAUSE_SECONDS)
    raise LoadFailed(f"after {MAX_WAIT_SECONDS:g} s a token is still {'refused' if is_live else 'live'}")
