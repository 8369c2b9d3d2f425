"""A million sessions on three masters: memory, the latency of a refresh, and the duration of what operators do.

Each master has a replica. The cluster runs on the core of the load, and the service on the core of the servers.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import cast

from benchmarks.failovers import await_promotion
from benchmarks.imports import P99_SECONDS
from benchmarks.load import LoadFailed
from benchmarks.logins import PACED_CONNECTIONS, PAUSE_MS
from benchmarks.memory import read_settled_memory
from benchmarks.operations import make_refresh
from benchmarks.processes import LOAD_CORE, on_core
from benchmarks.results import Rows
from benchmarks.revocations import end_everybody
from benchmarks.streams import revoke_all_of
from benchmarks.testbed import CLIENT, Testbed, run_concurrently
from tests.cluster.moving import moving_slot
from tests.cluster.nodes import Cluster, running_cluster
from tests.faults.deployment import KEYRING, Session, http_client_for
from tests.support.servers import RedisServer, ServiceProcess

FEW, MANY = "few sessions", "all sessions"
P50, P99 = "refresh, p50, ms", "refresh, p99, ms"
LIVE, IDLE = "a session with a live access token, bytes", "an idle session, bytes"
REFRESHES_PER_SECOND, REFRESHED_SESSIONS = 500, 5_000
SESSIONS_OF_ONE, PROBED_SLOTS = 100, 100
NODE_TIMEOUT_MS = 5_000
INTERVAL_SECONDS = 0.2
"""The pause between two refreshes of one slot during the failover."""
KEYS_AT_ONCE = 10_000


def measure_million(testbed: Testbed, _: int, *, sessions: int) -> Rows:
    """Return one value for each part, whose name has the unit."""
    with _running_masters(testbed) as cluster, testbed.running() as service:
        few = _measure_refresh(testbed, service, testbed.start_sessions(REFRESHED_SESSIONS))
        _delete_access_tokens(cluster)
        before, began = _read_memory(cluster), time.perf_counter()
        started = testbed.start_sessions(sessions)
        many = {f"{sessions:,} sessions are started, s": time.perf_counter() - began}
        live = [after - empty for after, empty in zip(_read_memory(cluster), before, strict=True)]
        if (deleted := _delete_access_tokens(cluster)) < sessions:
            raise LoadFailed(f"only {deleted} access tokens of {sessions} sessions were still live")
        idle = [after - empty for after, empty in zip(_read_memory(cluster), before, strict=True)]
        many |= _measure_refresh(testbed, service, started[-REFRESHED_SESSIONS:]) | {
            LIVE: sum(live) / sessions,
            IDLE: sum(idle) / sessions,
            "the fullest master / the mean": max(live) / statistics.mean(live),
            "one slot has moved, s": _move_slot(cluster, started[0]),
            f"revokeAll of {SESSIONS_OF_ONE} sessions is answered, s": _revoke_all(testbed, service),
        }
        many |= asyncio.run(_measure_failover(cluster, service, started))
        cluster.shards[-1].restart(cluster.shards[-1].replica)
        cluster.wait_until_whole()
        many["revoke-all --everything has ended, s"] = end_everybody(testbed)
    return {row: {part: [value] for part, value in found.items()} for row, found in {FEW: few, MANY: many}.items()}


@contextmanager
def _running_masters(testbed: Testbed) -> Iterator[Cluster]:
    """Start a cluster, which the testbed uses instead of its own Redis until the block ends."""
    own = testbed.deployment.redis
    with ExitStack() as running:
        with on_core(LOAD_CORE):
            cluster = running_cluster(testbed.folder, replicas=1, timeout_ms=NODE_TIMEOUT_MS)
            nodes = running.enter_context(cluster)
        running.callback(setattr, testbed.deployment, "redis", own)
        testbed.deployment.redis = cast("RedisServer", nodes)
        yield nodes


def _read_memory(cluster: Cluster) -> list[int]:
    """Return the used memory of each master, in bytes."""
    with ExitStack() as stack:
        return [read_settled_memory(stack.enter_context(node.connect())) for node in cluster.nodes]


def _delete_access_tokens(cluster: Cluster) -> int:
    """Delete all access tokens, as Redis does when they expire. Returns the number of those that were still live."""
    deleted = 0
    for node in cluster.nodes:
        with node.connect() as store, store.pipeline(transaction=False) as pipeline:
            for key in store.scan_iter("access:*", count=KEYS_AT_ONCE):
                pipeline.delete(key)
                if len(pipeline) == KEYS_AT_ONCE:
                    deleted += sum(pipeline.execute())
            deleted += sum(pipeline.execute())
    return deleted


def _measure_refresh(testbed: Testbed, service: ServiceProcess, sessions: Sequence[Session]) -> dict[str, float]:
    tokens = [token for _, token in sessions]

    def take(seconds: int) -> list[str]:
        return [tokens.pop() for _ in range(seconds * REFRESHES_PER_SECOND)]

    refresh = make_refresh(MANY, testbed, service, connections=PACED_CONNECTIONS, supply=take, pause_ms=PAUSE_MS)
    refresh.measure(1)
    found = refresh.measure(P99_SECONDS)
    return {P50: found.p50_ms, P99: found.p99_ms}


def _move_slot(cluster: Cluster, session: Session) -> float:
    """Move the slot of a session to another master. Returns the seconds."""
    began = time.perf_counter()
    with moving_slot(cluster, name_slot(session)):
        pass
    return time.perf_counter() - began


def name_slot(session: Session) -> str:
    """Return a key in the slot of the session."""
    token = KEYRING.parse_refresh_token(session[1])
    assert token is not None
    return f"{{{token.shard}}}"


def _revoke_all(testbed: Testbed, service: ServiceProcess) -> float:
    sessions = testbed.start_sessions_of("carol@example.com", SESSIONS_OF_ONE)
    began = time.monotonic()
    return revoke_all_of(service.port, sessions[0][0]) - began


async def _measure_failover(cluster: Cluster, service: ServiceProcess, sessions: Sequence[Session]) -> dict[str, float]:
    """Kill the last master, and refresh sessions in slots of that master until each refresh is accepted."""
    last, shard = len(cluster.shards) - 1, cluster.shards[-1]
    token_of_slot = {name_slot(session): session[1] for session in sessions[:REFRESHED_SESSIONS]}
    tokens = [token for slot, token in token_of_slot.items() if cluster.node_of(slot) == last][:PROBED_SLOTS]

    async def refresh(token: str) -> None:
        while (status := (await CLIENT.refresh(http, token)).status_code) == 503:  # noqa: ASYNC110
            await asyncio.sleep(INTERVAL_SECONDS)
        if status != 200:
            raise LoadFailed(f"a refresh after the failover is answered {status}")

    async with http_client_for(service) as http:
        await asyncio.to_thread(shard.wait_until_copied)
        began = time.perf_counter()
        shard.kill_master()
        promotion = asyncio.create_task(asyncio.to_thread(await_promotion, shard))
        await run_concurrently(tokens, refresh)
        ended = time.perf_counter()
        return {
            "a master was killed: its replica is promoted, s": await promotion - began,
            f"the same: refreshes in {len(tokens)} of its slots are accepted, s": ended - began,
        }
