"""Bytes: of Redis for a session, for a rotation that is over, and of a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import redis

from benchmarks.arena import CLIENT, Arena, start_users
from benchmarks.operations import VERIFY_ASKING, make_refresh, make_verify
from benchmarks.processes import pss_mib
from service.config.settings import load_settings
from service.crypto.keyring import RefreshToken
from service.crypto.opaque_tokens import make_access_token
from service.worker import Worker
from tests.conftest import SECRET_KEY
from tests.faults.deployment import KEYRING, Deployment
from tests.support.waiting import wait_until

ROTATED_SESSIONS = 1_000
ROTATIONS = 3
SHORT_SECONDS = 0.5
SCOPE = "realm:main role:enduser"


def measure_session_bytes(arena: Arena, sessions: int) -> float:
    """Of Redis for one session with its live access token, each of another user, at the service's default settings."""
    store = arena.deployment.store
    store.flushdb()
    before = _read_settled_memory(store)
    arena.start_sessions(sessions)
    return (_read_settled_memory(store) - before) / sessions


def measure_growth(arena: Arena) -> float:
    """Bytes of Redis that a rotation leaves behind once its access token and its grace are over, after the first one.

    Both are made short, so that Redis itself sees them end.
    """
    return asyncio.run(_measure_growth(arena.deployment))


def measure_worker(arena: Arena, seconds: int) -> float:
    """Mebibytes of a worker, as PSS, when it has refreshed and verified for a while."""
    with arena.running() as service:
        make_refresh("warm", arena, service).measure(seconds)
        make_verify(VERIFY_ASKING, arena, service).measure(seconds)
        return pss_mib(service.process.pid)


def _read_settled_memory(store: redis.Redis) -> int:
    """Once its tables have grown to their size, which takes Redis a while after many writes."""
    before, now = -1, _read_memory(store)
    while before != now:
        time.sleep(1)
        before, now = now, _read_memory(store)
    return now


def _read_memory(store: redis.Redis) -> int:
    """Without what its connections take."""
    info = store.info("memory")
    return int(info["used_memory"]) - int(info["mem_clients_normal"]) - int(info.get("mem_aof_buffer", 0))


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
    # What an access token leaves is its family, and that in its user's index.
    keys = 2 * len(tokens)
    weights: list[int] = []
    for _ in range(1 + ROTATIONS):
        _await_expiry(deployment.store, keys)
        tokens = await rotate(worker, tokens)
        _await_expiry(deployment.store, keys)
        weights.append(_weigh_keys(deployment.store))
    await worker.close()
    return (weights[-1] - weights[0]) / (ROTATIONS * len(tokens))


async def rotate(worker: Worker, tokens: Sequence[RefreshToken]) -> list[RefreshToken]:
    """The next refresh token of each session, whose present one is spent."""
    for token in tokens:
        await worker.families.spend(
            token,
            client_id=CLIENT.client_id,
            secret_used=True,
            wanted_scope="",
            allowed_scope=SCOPE,
            access_token=make_access_token(token.shard),
        )
    return [token._replace(generation=token.generation + 1) for token in tokens]


def _await_expiry(store: redis.Redis, keys: int) -> None:
    """Until so many are left. Redis deletes what has expired when it comes by, and a scan lets it come by."""
    wait_until(lambda: sum(1 for _ in store.scan_iter(count=1000)) == keys, "the access tokens expire")


def _weigh_keys(store: redis.Redis) -> int:
    """Bytes of all keys with their values, each by itself, as Redis weighs them."""
    keys = list(store.scan_iter(count=1000))
    with store.pipeline(transaction=False) as asked:
        for key in keys:
            asked.memory_usage(key, samples=0)
        return sum(asked.execute())
