"""revokeAll over thousands of sessions: the time of one step in Redis, and the time until the response.

And the time of the command that ends the sessions of all users, from the start of its process to its end.

A step delays all other requests of the same Redis. Its unit is the start of a session, measured on the same server
immediately before.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time

import httpx2
import redis

from benchmarks.load import LoadFailed
from benchmarks.processes import SERVER_CORE, on_core
from benchmarks.results import Rows
from benchmarks.testbed import Testbed
from service.store.sessions.revocations import MAX_KEYS
from tests.faults.deployment import http_client_for, start_sessions, worker_on
from tests.support.clients_and_users import revoke_all
from tests.support.servers import CHECKOUT, ServiceProcess

STEP = "a step of revokeAll / a start of a session, processor time of Redis"
ANSWERED = "revokeAll is answered"
COUNTS = (2_000,)
ADMIN = CHECKOUT / "scripts" / "admin"
EVERYBODY = "revoke-all --everything has ended"
USERS = 40_000
USERNAME = "many-sessions@example.com"


def measure_revocations(testbed: Testbed, rounds: int) -> Rows:
    with testbed.running() as service:
        rows = asyncio.run(_measure(testbed, service, rounds))
    return rows | {EVERYBODY: {f"{USERS:,} users": [_start_and_end(testbed) for _ in range(rounds)]}}


def _start_and_end(testbed: Testbed) -> float:
    testbed.start_sessions(USERS)
    return end_everybody(testbed)


def end_everybody(testbed: Testbed) -> float:
    """Return the seconds of the command that ends the sessions of all users."""
    environment = {"PATH": os.environ["PATH"]} | testbed.deployment.environment()
    began = time.perf_counter()
    with on_core(SERVER_CORE):
        subprocess.run([ADMIN, "revoke-all", "--everything", "--yes"], env=environment, timeout=3600, check=True)
    return time.perf_counter() - began


async def _measure(testbed: Testbed, service: ServiceProcess, rounds: int) -> Rows:
    steps: dict[str, list[float]] = {}
    answered: dict[str, list[float]] = {}
    async with http_client_for(service) as http:
        for _ in range(rounds):
            for count in COUNTS:
                in_starts, seconds = await _measure_once(testbed, http, count)
                steps.setdefault(f"{count:,} sessions", []).append(in_starts)
                answered.setdefault(f"{count:,} sessions", []).append(seconds)
    return {STEP: steps, ANSWERED: answered}


async def _measure_once(testbed: Testbed, http: httpx2.AsyncClient, count: int) -> tuple[float, float]:
    """Return the time of a full step, in starts of a session, and the seconds until the response.

    Each session has two keys. A request that reaches its deadline is answered 503 and is sent again.
    """
    store = testbed.deployment.store
    before_us = _read_us(store)
    async with worker_on(testbed.deployment) as worker:
        sessions = await start_sessions(worker, USERNAME, count)
    start_us = (_read_us(store) - before_us) / count
    before_us, began = _read_us(store), time.perf_counter()
    while (response := await revoke_all(http, sessions[0][0])).status_code == 503:
        pass
    seconds = time.perf_counter() - began
    if response.status_code != 200:
        raise LoadFailed(f"revokeAll answers {response.status_code}")
    return (_read_us(store) - before_us) * MAX_KEYS / (2 * count) / start_us, seconds


def _read_us(store: redis.Redis) -> float:
    """Return the processor time of Redis since its start, in microseconds."""
    taken = store.info("cpu")
    return 1_000_000 * float(taken["used_cpu_user"] + taken["used_cpu_sys"])
