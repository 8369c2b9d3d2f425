"""Processor time of Redis for a refresh in a busy session, compared with a fresh session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import redis

from benchmarks.memory import rotate
from benchmarks.testbed import Testbed, start_users
from service.config.settings import load_settings
from service.crypto.keyring import RefreshToken
from service.worker import Worker
from tests.conftest import SECRET_KEY
from tests.faults.deployment import KEYRING, Deployment

BUSY = "Redis, a refresh of a session that is refreshed twice a second / of a fresh one"
REFRESHES = 400
PAUSE_MS = 500
"""The busy session is refreshed twice a second by the clock of the scripts. 400 refreshes are within the grace."""

MEASURED = 200
ROUNDS = 9


def measure_busy_session(testbed: Testbed) -> float:
    """Measure the script of a refresh in the busy session, as a multiple of that in a fresh one.

    Redis reports the time of its scripts. Each round has 200 calls of each kind. The least of nine rounds counts.
    """
    return asyncio.run(_measure(testbed.deployment))


async def _measure(deployment: Deployment) -> float:
    clock_offset_ms = 0
    settings = load_settings({"REDIS_URL": deployment.redis.url, "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY})
    worker = Worker(settings, lambda: clock_offset_ms)

    deployment.store.flushdb()
    (busy,) = await _start(worker, 1)

    async def refresh_busily(times: int) -> None:
        nonlocal busy, clock_offset_ms
        for _ in range(times):
            clock_offset_ms += PAUSE_MS
            (busy,) = await rotate(worker, [busy])

    await refresh_busily(REFRESHES)
    of_busy, of_fresh = [], []
    for _ in range(ROUNDS):
        fresh = await _start(worker, MEASURED)
        of_fresh.append(await _measure_calls(deployment.store, rotate(worker, fresh)))
        of_busy.append(await _measure_calls(deployment.store, refresh_busily(MEASURED)))
    await worker.close()
    return min(of_busy) / min(of_fresh)


async def _start(worker: Worker, count: int) -> list[RefreshToken]:
    return [token for _, text in await start_users(worker, count) if (token := KEYRING.parse_refresh_token(text))]


async def _measure_calls(store: redis.Redis, work: Awaitable[object]) -> float:
    """Return microseconds of Redis for each call of a script."""
    store.config_resetstat()
    await work
    return float(store.info("commandstats")["cmdstat_evalsha"]["usec_per_call"])
