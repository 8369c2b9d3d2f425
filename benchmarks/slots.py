"""Refreshes while a slot of a cluster moves key by key, as Redis 7 and `redis-cli --cluster reshard` move it."""

from __future__ import annotations

import asyncio
import tempfile
from itertools import count, islice
from pathlib import Path

from benchmarks.load import LoadFailed
from benchmarks.results import WHOLE, Rows
from service.config.settings import load_settings
from service.protocol.user import identify_user
from service.store.keys import index_key
from service.worker import Worker
from tests.cluster.moving import moving_slot
from tests.cluster.nodes import CALM_TIMEOUT_MS, Cluster, running_cluster
from tests.conftest import environment_of
from tests.faults.deployment import http_client_for, start_sessions
from tests.support.clients_and_users import PHONE_APP, tokens_of
from tests.support.servers import ServiceProcess, running_service

KEYS, SESSIONS = 20_000, 8
REFUSED = f"refreshes that are refused while their slot of {KEYS:,} keys moves"
SHARD = "0a3"
PAUSE_SECONDS, MARGIN_SECONDS = 0.02, 0.5


def measure_slots(rounds: int) -> Rows:
    """Return the percentage of refused refreshes, from half a second before the move to half a second after it."""
    with tempfile.TemporaryDirectory() as folder, running_cluster(Path(folder), timeout_ms=CALM_TIMEOUT_MS) as cluster:
        _fill(cluster)
        with running_service(Path(folder), environment_of(cluster)) as service:
            return {REFUSED: {WHOLE: [asyncio.run(_measure(cluster, service)) for _ in range(rounds)]}}


def _fill(cluster: Cluster) -> None:
    """Fill the slot with keys of the form and size of access tokens."""
    master = cluster.nodes[cluster.node_of(f"access:{{{SHARD}}}:")].connect()
    with master, master.pipeline(transaction=False) as pipeline:
        for number in range(KEYS):
            pipeline.set(f"access:{{{SHARD}}}:filler-{number:036d}", "2" * 220, px=3_600_000)
        pipeline.execute()


async def _measure(cluster: Cluster, service: ServiceProcess) -> float:
    names = (f"mover-{number}@example.com" for number in count())
    movers = list(islice((name for name in names if identify_user("main", name).shard == SHARD), SESSIONS))
    worker = Worker(load_settings(environment_of(cluster)))
    tokens = [(await start_sessions(worker, name, 1))[0][1] for name in movers]
    await worker.close()
    statuses: list[int] = []
    is_over = asyncio.Event()
    async with http_client_for(service) as http:

        async def refresh_until_over(refresh_token: str) -> None:
            while not is_over.is_set():
                response = await PHONE_APP.refresh(http, refresh_token)
                statuses.append(response.status_code)
                if response.status_code == 200:
                    refresh_token = tokens_of(response)["refresh_token"]
                await asyncio.sleep(PAUSE_SECONDS)

        clients = [asyncio.create_task(refresh_until_over(token)) for token in tokens]
        await asyncio.sleep(MARGIN_SECONDS)
        with moving_slot(cluster, index_key(SHARD, identify_user("main", movers[0]).subject)) as moving:
            moved = await asyncio.to_thread(moving.move_keys)
            await asyncio.to_thread(moving.finish)
        await asyncio.sleep(MARGIN_SECONDS)
        is_over.set()
        await asyncio.gather(*clients)
    if moved < KEYS or not set(statuses) <= {200, 503}:
        raise LoadFailed(f"{moved} keys moved, and refreshes were answered {set(statuses)}")
    return 100 * statuses.count(503) / len(statuses)
