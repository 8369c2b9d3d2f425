"""Memory of Redis for a session, and memory of a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import redis

from benchmarks.load import LoadFailed
from benchmarks.operations import VERIFY_ASKING, make_refresh, make_verify
from benchmarks.processes import pss_mib
from benchmarks.testbed import CLIENT, Testbed, run_concurrently
from service.crypto.hashing_pool import TRIM_SECONDS
from service.crypto.keyring import RefreshToken, make_access_token
from service.protocol.client import Client
from service.worker import Worker
from tests.faults.deployment import KEYRING, Deployment, Session, worker_on

SHORT_SECONDS = 0.5
SCOPE = "realm:main role:enduser"


def measure_session_bytes(testbed: Testbed, sessions: int, *, access_tokens: int) -> float:
    """Return the bytes of Redis for one session with so many live access tokens.

    Each session belongs to another user, and was refreshed until it had its access tokens. All settings have their
    defaults. Raises LoadFailed if Redis has another number of keys at the end, because access tokens expired.
    """
    store = testbed.deployment.store
    store.flushdb()
    before = read_settled_memory(store)
    started = testbed.start_sessions(sessions)
    asyncio.run(_refresh_each(testbed.deployment, started, access_tokens - 1))
    after = read_settled_memory(store)
    # The keys of a session are its family, the index of its user, and its access tokens.
    expected, found = (2 + access_tokens) * sessions, store.dbsize()
    if found != expected:
        raise LoadFailed(f"Redis has {found} keys; expected {expected}, with {access_tokens} access tokens a session")
    return (after - before) / sessions


def measure_worker(testbed: Testbed, seconds: int) -> float:
    """Return the memory (PSS) of a worker in MiB, after a load of `refresh` and one of `verify`.

    The memory of the first hashes has gone back to the system by then.
    """
    with testbed.running() as service:
        make_refresh("warm", testbed, service).measure(seconds)
        make_verify(VERIFY_ASKING, testbed, service).measure(seconds)
        time.sleep(TRIM_SECONDS + SHORT_SECONDS)
        return pss_mib(service.process.pid)


def read_settled_memory(store: redis.Redis) -> int:
    """Return the used memory as soon as it is constant.

    Redis resizes its hash tables for some time after many writes.
    """
    before, now = -1, _read_memory(store)
    while before != now:
        time.sleep(1)
        before, now = now, _read_memory(store)
    return now


def _read_memory(store: redis.Redis) -> int:
    """Return the used memory without the buffers of connections, of replication and of the append-only file."""
    info = store.info("memory")
    buffers = ("mem_clients_normal", "mem_total_replication_buffers", "mem_cluster_links", "mem_aof_buffer")
    return int(info["used_memory"]) - sum(int(info.get(name, 0)) for name in buffers)


async def _refresh_each(deployment: Deployment, sessions: Sequence[Session], times: int) -> None:
    """Refresh each session so many times."""
    tokens = [token for _, text in sessions if (token := KEYRING.parse_refresh_token(text))]
    async with worker_on(deployment) as worker:

        async def refresh(token: RefreshToken) -> None:
            for generation in range(token.generation, token.generation + times):
                await _spend(worker, token._replace(generation=generation))

        await run_concurrently(tokens, refresh)


async def _spend(worker: Worker, token: RefreshToken) -> None:
    spent = await worker.families.spend(
        token,
        client=Client(client_id=CLIENT.client_id, scope=SCOPE),
        secret_used=True,
        wanted_scope="",
        access_token=make_access_token(token.shard),
    )
    if spent.verdict != "rotated":
        raise LoadFailed(f"a refresh was answered {spent.verdict}")
