"""The time until the service is back after the promotion of a replica, and the slowest refusal during the failover.

The time counts from the promotion. Its moment depends on Redis and its timeouts alone. Behind Sentinels it counts
from when all of them name the new master. A frozen master keeps its connections open and sends nothing.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from benchmarks.load import LoadFailed
from benchmarks.results import Rows
from service.protocol.user import identify_user
from tests.cluster.nodes import Cluster, Shard, Watched, running_cluster, running_sentinel
from tests.conftest import environment_of
from tests.faults.deployment import http_client_for
from tests.support.clients_and_users import ALICE, PHONE_APP, tokens_of
from tests.support.servers import ServiceProcess, running_service
from tests.support.waiting import MAX_WAIT_SECONDS, until_status

BACK, REFUSED = "the service is back after a replica was promoted", "503 during a failover, the slowest request"
READY = "the service is ready again after a failover"
INTERVAL_SECONDS = 0.05
"""The interval between two requests. Each is sent even if earlier ones are not answered yet."""

Stop = Callable[[Shard], None]


@dataclass
class _Refreshes:
    """Repetitions of one refresh. Times are those of `time.perf_counter`."""

    http: httpx2.AsyncClient
    refresh_token: str
    accepted_at: float | None = None
    """The time at which the first request was sent that was answered 200 after a 503."""
    slowest_refusal: float = 0.0

    async def send(self) -> None:
        started = time.perf_counter()
        status = (await PHONE_APP.refresh(self.http, self.refresh_token)).status_code
        if status == 503:
            self.slowest_refusal = max(self.slowest_refusal, time.perf_counter() - started)
        elif status != 200:
            raise LoadFailed(f"a refresh during a failover is answered {status}")
        elif self.slowest_refusal:
            self.accepted_at = min(started, self.accepted_at or started)


def measure_failovers(rounds: int) -> Rows:
    """Return seconds."""
    rows: Rows = {BACK: {}, REFUSED: {}, READY: {}}
    stops: dict[str, Stop] = {
        "killed": lambda shard: shard.kill_master(),
        "frozen": lambda shard: shard.master.process.send_signal(signal.SIGSTOP),
    }
    for _ in range(rounds):
        for name, stop in stops.items():
            for topology, running in {"cluster": _running_cluster, "Sentinel": _running_sentinel}.items():
                with running() as (shard, service):
                    values = asyncio.run(_measure(service, shard, stop))
                for row, value in values.items():
                    rows[row].setdefault(f"{topology}, {name}", []).append(value)
    return rows


@contextmanager
def _running_cluster() -> Iterator[tuple[Shard, ServiceProcess]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        running_cluster(Path(folder), replicas=1) as cluster,
        running_service(Path(folder), environment_of(cluster)) as service,
    ):
        yield _shard_of_alice(cluster), service


@contextmanager
def _running_sentinel() -> Iterator[tuple[Shard, ServiceProcess]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        running_sentinel(Path(folder)) as watched,
        running_service(Path(folder), environment_of(watched)) as service,
    ):
        yield watched, service


def _shard_of_alice(cluster: Cluster) -> Shard:
    identity = identify_user(ALICE.realm, ALICE.username)
    return cluster.shards[cluster.node_of(f"family:{{{identity.shard}}}:x")]


async def _measure(service: ServiceProcess, shard: Shard, stop: Stop) -> dict[str, float]:
    async with http_client_for(service) as http:
        refreshes = _Refreshes(http, tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"])
        await asyncio.to_thread(shard.wait_until_copied)
        stop(shard)
        promotion = asyncio.create_task(asyncio.to_thread(await_promotion, shard))
        deadline = time.perf_counter() + MAX_WAIT_SECONDS
        sent = []
        while refreshes.accepted_at is None or not promotion.done():
            if time.perf_counter() > deadline:
                raise LoadFailed(f"the service is not back after {MAX_WAIT_SECONDS:g} s")
            sent.append(asyncio.create_task(refreshes.send()))
            await asyncio.sleep(INTERVAL_SECONDS)
        await asyncio.gather(*sent)
        promoted_at = await promotion
        await until_status(lambda: http.get("/readyz"), 200)
        return {
            BACK: max(0.0, refreshes.accepted_at - promoted_at),
            REFUSED: refreshes.slowest_refusal,
            READY: max(0.0, time.perf_counter() - max(refreshes.accepted_at, promoted_at)),
        }


def await_promotion(shard: Shard) -> float:
    """Return the time at which a replica is the master, and all Sentinels, if there are any, name it."""
    shard.wait_for_promotion()
    if isinstance(shard, Watched):
        shard.wait_until_named()
    return time.perf_counter()
