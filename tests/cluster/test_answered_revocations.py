"""No revocation that was answered is undone when a master is replaced: by plan, after a freeze, or after a kill."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from service.redis_client.deadline import StoreUnavailable
from service.worker import Worker
from tests.cluster.failovers import order_switch
from tests.cluster.nodes import Shard, running_cluster, running_sentinel
from tests.cluster.workers import service_at, shard_of
from tests.faults.deployment import KEEPS_DATA, start_sessions
from tests.faults.soak.clock import pause, rest
from tests.support.clients_and_users import PHONE_APP, access_key_of
from tests.support.loop_time import LoopTime
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.clause("decided-durability", "decided-i7-revocation-is-final")]

USERNAME = "carol@example.com"
LANES = 8
STOCK = 500
"""The number of sessions that wait for their revocation."""
PAUSE_SECONDS = 0.01
ANSWERED_BEFORE, ANSWERED = 100, 1_000
FREEZES = (1.0, 2.2, 2.5, 4.0)
"""Seconds. A server counts as down after 1.5 s."""
DOWN_AFTER_MS = 1_500
RNG = random.Random(0)

Event = Callable[[Shard], None]


def freeze(seconds: float) -> Event:
    def inject(shard: Shard) -> None:
        with shard.master.frozen():
            rest(RNG, seconds, seconds)

    return inject


def kill(shard: Shard) -> None:
    killed = shard.master
    shard.kill_master()
    shard.wait_for_promotion()
    shard.restart(killed)


def switch(*how: str) -> Event:
    def inject(shard: Shard) -> None:
        order_switch(shard, *how)
        shard.wait_for_promotion()

    return inject


async def revoke_through(worker: Worker, http: httpx2.AsyncClient, shard: Shard, event: Event) -> list[str]:
    """Return the access tokens whose revocation was answered before, during and after the event.

    The oldest sessions end first, so that each is at all replicas before its revocation.
    """
    stock = deque(await start_sessions(worker, USERNAME, STOCK))
    answered: list[str] = []
    is_over = False

    async def revoke() -> None:
        while not is_over or len(answered) < ANSWERED:
            if stock:
                access_token, refresh_token = stock.popleft()
                revoked = (await PHONE_APP.revoke(http, refresh_token)).status_code == 200
                answered.extend([access_token] * revoked)
            await pause(PAUSE_SECONDS)

    async def supply() -> None:
        while not is_over or len(answered) < ANSWERED:
            with suppress(StoreUnavailable):
                stock.extend(await start_sessions(worker, USERNAME, max(0, STOCK - len(stock))))
            await pause(PAUSE_SECONDS)

    def inject() -> None:
        wait_until(lambda: len(answered) >= ANSWERED_BEFORE, "revocations before the event")
        event(shard)
        shard.settle()

    tasks = [asyncio.create_task(supply()), *(asyncio.create_task(revoke()) for _ in range(LANES))]
    await asyncio.to_thread(inject)
    is_over = True
    await asyncio.gather(*tasks)
    return answered


async def find_undone(shard: Shard, url: str, durability: str, events: Sequence[Event], time: LoopTime) -> list[int]:
    """Return the number of undone revocations for each event."""
    undone = []
    with time.running_at(1):
        async with service_at(url, durability) as (worker, http):
            for event in events:
                answered = await revoke_through(worker, http, shard, event)
                assert len(set(answered)) >= ANSWERED
                alive = await worker.redis.read_many([("EXISTS", access_key_of(token)) for token in answered])
                undone.append(sum(alive))
    return undone


@pytest.mark.clause("decided-redis-sentinel")
@pytest.mark.parametrize(("replicas", "lowest_priority"), [(1, 100), (2, 100), (2, 0)], ids=["1", "2", "1 of 2"])
async def test_sentinel_undoes_no_answered_revocation(
    tmp_path: Path, loop_time: LoopTime, replicas: int, lowest_priority: int
) -> None:
    """A replica of priority 0 is never promoted, but its confirmation counts for WAIT."""
    events = [switch(), *map(freeze, FREEZES), kill]
    with running_sentinel(
        tmp_path, replicas=replicas, sentinels=3, down_after_ms=DOWN_AFTER_MS, options=KEEPS_DATA
    ) as watched:
        with watched.replicas[-1].connect() as replica:
            replica.config_set("replica-priority", lowest_priority)
        undone = await find_undone(watched, watched.url, "replica", events, loop_time)

    assert undone == [0] * len(events)


@pytest.mark.clause("decided-redis-cluster")
@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_cluster_undoes_no_answered_revocation(tmp_path: Path, loop_time: LoopTime, replicas: int) -> None:
    events = [switch(), switch("TAKEOVER"), *map(freeze, FREEZES), kill]
    with running_cluster(tmp_path, replicas=replicas, timeout_ms=DOWN_AFTER_MS, options=KEEPS_DATA) as cluster:
        shard = shard_of(cluster, USERNAME)
        undone = await find_undone(shard, cluster.url, f"replica:{replicas}", events, loop_time)

    assert undone == [0] * len(events)
