"""Memory of Redis for a session and for a past rotation, and memory of a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import redis

from benchmarks.load import LoadFailed
from benchmarks.operations import VERIFY_ASKING, make_refresh, make_verify
from benchmarks.processes import pss_mib
from benchmarks.testbed import CLIENT, Testbed, run_concurrently, start_users
from service.config.settings import load_settings
from service.crypto.hashing_pool import TRIM_SECONDS
from service.crypto.keyring import RefreshToken, make_access_token
from service.protocol.client import Client
from service.worker import Worker
from tests.conftest import SECRET_KEY
from tests.faults.deployment import KEYRING, Deployment, Session, worker_on
from tests.support.waiting import wait_until

ROTATED_SESSIONS = 1_000
ROTATIONS = 3
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


def measure_growth(testbed: Testbed) -> float:
    """Return the bytes of Redis that a rotation leaves after its access token and its grace period have expired.

    The first rotation does not count. Both periods are short, so that Redis expires the keys.
    """
    return asyncio.run(_measure_growth(testbed.deployment))


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


async def _measure_growth(deployment: Deployment) -> float:
    settings = load_settings(
        {
            "REDIS_URL": deployment.redis.url,
            "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY,
            "TOKEN_SERVICE_ACCESS_TOKEN_TTL": str(SHORT_SECONDS),
            "TOKEN_SERVICE_REFRESH_GRACE": str(SHORT_SECONDS),
        }
    )
    worker = Worker(settings, lambda: 0)
    deployment.store.flushdb()
    sessions = await start_users(worker, ROTATED_SESSIONS)
    tokens = [token for _, text in sessions if (token := KEYRING.parse_refresh_token(text))]
    # The keys of a session without an access token: its family and the index of its user.
    keys = 2 * len(tokens)
    sizes: list[int] = []
    for _ in range(1 + ROTATIONS):
        _await_expiry(deployment.store, keys)
        tokens = await rotate(worker, tokens)
        _await_expiry(deployment.store, keys)
        sizes.append(_read_key_bytes(deployment.store))
    await worker.close()
    return (sizes[-1] - sizes[0]) / (ROTATIONS * len(tokens))


async def _refresh_each(deployment: Deployment, sessions: Sequence[Session], times: int) -> None:
    """Refresh each session so many times."""
    tokens = [token for _, text in sessions if (token := KEYRING.parse_refresh_token(text))]
    async with worker_on(deployment) as worker:

        async def refresh(token: RefreshToken) -> None:
            for generation in range(token.generation, token.generation + times):
                await _spend(worker, token._replace(generation=generation))

        await run_concurrently(tokens, refresh)


async def rotate(worker: Worker, tokens: Sequence[RefreshToken]) -> list[RefreshToken]:
    """Spend the refresh token of each session, one after the other. Returns the next refresh tokens."""
    for token in tokens:
        await _spend(worker, token)
    return [token._replace(generation=token.generation + 1) for token in tokens]


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


def _await_expiry(store: redis.Redis, keys: int) -> None:
    """Wait until `keys` keys are left. Redis deletes an expired key at the latest when a scan meets it."""
    wait_until(lambda: sum(1 for _ in store.scan_iter(count=1000)) == keys, "the access tokens expire")


def _read_key_bytes(store: redis.Redis) -> int:
    """Return the sum of MEMORY USAGE over all keys, in bytes."""
    keys = list(store.scan_iter(count=1000))
    with store.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.memory_usage(key, samples=0)
        return sum(pipeline.execute())
