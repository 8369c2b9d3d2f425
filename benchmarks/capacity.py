"""The figures of docs/scaling.md: memory of a session and processor time of requests, in Redis and in the service.

    .venv/bin/python -m benchmarks.capacity

Times are processor time, which depends less on other programs of the machine. Memory and bytes are exact.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from redis.crc import key_slot

from benchmarks.processes import cpu_seconds
from benchmarks.testbed import run_concurrently
from service.config.settings import load_settings
from service.crypto.keyring import RefreshToken
from service.crypto.opaque_tokens import make_access_token
from service.gateway import BearerLookup
from service.gateway.access_record import access_key
from service.protocol.user import User, identify_user
from service.worker import Worker
from tests.conftest import SECRET_KEY, make_code
from tests.faults.deployment import KEYRING, Deployment, Session, http_client_for, start_sessions, worker_on
from tests.support.clients_and_users import (
    ALICE,
    INTROSPECT,
    PHONE_APP,
    REVOKE,
    TOKEN,
    VERIFY,
    access_name_of,
    bearer,
    login_form,
)
from tests.support.servers import running_service, start_redis, stop
from tests.support.waiting import wait_until

USERS = 10_000
CALLS = 10_000
BALANCED_USERS = 1_000_000
LOGINS = 100
REFRESHES = 5
"""The size of a session is constant from its second refresh on. A run with 70 refreshes gave the same sizes."""
CONCURRENCY = 32
SCOPE = "realm:main role:enduser"

Item = TypeVar("Item")

_run_concurrently = partial(run_concurrently, at_once=CONCURRENCY)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        deployment = Deployment(Path(folder))
        try:
            _print(
                f"Redis {deployment.store.info('server')['redis_version']}, {USERS} users, {CALLS} calls of each kind\n"
            )
            deployment.store.config_set("auto-aof-rewrite-percentage", 0)
            _print_balance()
            asyncio.run(_measure_memory(deployment))
            asyncio.run(_measure_scripts(deployment))
            asyncio.run(_measure_requests(deployment))
            deployment.store.shutdown(nosave=True)
        finally:
            stop(deployment.redis.process)


def _print_balance() -> None:
    """Print how evenly users are distributed over masters with equal numbers of slots.

    The shards are computed from user names as the service computes them.
    """
    users = Counter(key_slot(f"{{{_shard_of(n)}}}".encode()) for n in range(BALANCED_USERS))
    tags = {key_slot(f"{{{shard:03x}}}".encode()) for shard in range(0x1000)}
    _print(
        f"slots that have a shard: {len(tags)}; {BALANCED_USERS} users; the fullest master, as a multiple of the mean:"
    )
    for masters in (3, 12, 32, 64, 128, 256):
        held = Counter[int]()
        for slot, count in users.items():
            held[slot * masters // 16384] += count
        _print(f"{masters:5} masters: {max(held.values()) * masters / BALANCED_USERS:.2f}")
    _print("")


def _shard_of(n: int) -> str:
    return identify_user("main", f"user{n}@example.com").shard


# Memory


async def _measure_memory(deployment: Deployment) -> None:
    async with worker_on(deployment) as worker:
        for sessions_each in (16, 4, 2, 1):
            await _measure_sessions(deployment, worker, sessions_each)
        await _measure_rewrite(deployment)
        await _measure_tracking(deployment, worker)
    deployment.store.flushdb()
    async with worker_on(deployment) as worker:
        before = _used(deployment)
        users = [User(realm="main", username=f"user{n}@example.com", password_hash="x" * 97) for n in range(USERS)]
        await worker.registry.put_users(users)
        _print(f"a user's record: {(_used(deployment) - before) / USERS:.0f} bytes\n")
    deployment.store.flushdb()


async def _measure_rewrite(deployment: Deployment) -> None:
    """Print the cost of a rewrite of the append-only file while Redis has no other load."""
    deployment.store.bgrewriteaof()
    wait_until(lambda: not deployment.store.info("persistence")["aof_rewrite_in_progress"], "the file is rewritten")
    info = deployment.store.info("everything")
    fork_ms, copied = info["latest_fork_usec"] / 1000, info["aof_last_cow_size"] >> 20
    _print(f"append-only file after a rewrite: {info['aof_base_size'] / USERS:.0f} bytes a session")
    _print(f"fork for the rewrite: {fork_ms:.1f} ms, {copied} MiB copied of {_used(deployment) >> 20} MiB\n")


async def _measure_tracking(deployment: Deployment, worker: Worker) -> None:
    """Print the bytes of Redis's table of tracked keys, for an access token that several gateways have cached."""
    deployment.store.flushdb()
    sessions = [await start_sessions(worker, f"user{n}@example.com", 1) for n in range(USERS)]
    tokens = [token for ((token, _),) in sessions]
    before = _used_by_keys(deployment)
    gateways: list[BearerLookup] = []
    for watchers in (1, 2, 10):
        while len(gateways) < watchers:
            gateways.append(gateway := BearerLookup(deployment.redis.url))
            await _run_concurrently(tokens * 2, gateway.lookup)
        keys = deployment.store.info("stats")["tracking_total_keys"]
        _print(f"{keys} tokens tracked for {watchers}: {(_used_by_keys(deployment) - before) / keys:.0f} bytes a token")
    for gateway in gateways:
        await gateway.close()


async def _measure_sessions(deployment: Deployment, worker: Worker, sessions_each: int) -> None:
    """Print the bytes of a session with one live access token, and without one."""
    deployment.store.flushdb()
    before = _used(deployment)
    sessions: list[Session] = []
    users = USERS // sessions_each
    for n in range(users):
        sessions += await start_sessions(worker, f"user{n}@example.com", sessions_each)
    whole = (_used(deployment) - before) / len(sessions)
    deployment.store.delete(*(access_key(name.shard, name.digest) for name in map(access_name_of, dict(sessions))))
    idle = (_used(deployment) - before) / len(sessions)
    _print(f"{sessions_each:2} sessions a user: {whole:.0f} bytes a session, {idle:.0f} without a live access token")


def _used(deployment: Deployment) -> int:
    return int(deployment.store.info("memory")["used_memory"])


def _used_by_keys(deployment: Deployment) -> int:
    """Return the used memory without the buffers of connections, which vary with the load."""
    return _used(deployment) - int(deployment.store.info("memory")["mem_clients_normal"])


# Scripts


async def _measure_scripts(deployment: Deployment) -> None:
    """Measure each script alone, with a replica and the append-only file."""
    with tempfile.TemporaryDirectory() as folder:
        replica = start_redis(Path(folder), "--replicaof", f"127.0.0.1 {deployment.redis.port}")
        wait_until(lambda: deployment.store.info("replication")["connected_slaves"] == 1, "the replica")
        wait_until(
            lambda: replica.connect().info("replication")["master_link_status"] == "up", "the first synchronisation"
        )
        try:
            hours: list[int] = []
            settings = load_settings({"REDIS_URL": deployment.redis.url, "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY})
            worker = Worker(settings, lambda: len(hours) * 3_600_000)
            await _measure_each_script(deployment, worker, hours)
            await worker.close()
        finally:
            stop(replica.process)


async def _measure_each_script(deployment: Deployment, worker: Worker, hours: list[int]) -> None:
    """Measure the scripts one after the other. Each entry of `hours` moves their clock forward by one hour."""
    _print(
        "Redis: time in the script, time in all (with replication and file), bytes to the replica, bytes to the file"
    )
    sessions: list[Session] = []
    meter = _Meter(deployment)
    with meter.of("start_family", CALLS):
        for n in range(CALLS):
            if n % CONCURRENCY == 0:
                await asyncio.gather(
                    *(_start(worker, f"user{n + i}@example.com", sessions) for i in range(CONCURRENCY))
                )
    current = [token for _, text in sessions if (token := KEYRING.parse_refresh_token(text))]
    count = len(current)

    async def spend(token: RefreshToken) -> None:
        await worker.families.spend(
            token,
            client_id="phone-app",
            secret_used=False,
            wanted_scope="",
            allowed_scope=SCOPE,
            access_token=make_access_token(token.shard),
        )

    with meter.of("spend_refresh_token, the first", count):
        await _run_concurrently(current, spend)
    for _ in range(REFRESHES):
        hours.append(1)
        current = [token._replace(generation=token.generation + 1) for token in current]
        await _run_concurrently(current, spend)
    hours.append(1)
    current = [token._replace(generation=token.generation + 1) for token in current]
    with meter.of(f"the same, {REFRESHES} hours later", count):
        await _run_concurrently(current, spend)
    names = [access_name_of(access_token) for access_token, _ in sessions]
    with meter.of("GET of an access token", count):
        await _run_concurrently(names, lambda name: worker.access_tokens.find(name))
    with meter.of("revoke_access_token", count):
        await _run_concurrently(names, lambda name: worker.access_tokens.revoke(name, client_id="phone-app"))
    with meter.of("end_family", count):
        await _run_concurrently(
            current,
            lambda token: worker.families.end(
                token.shard, token.family_digest, client_id="phone-app", reason="revoked"
            ),
        )
    for size in (1, CALLS // 5, 2 * CALLS):
        await _measure_index(worker, meter, size, spend)
    for size in (1, 10, 1000, 5000):
        owners = [User(realm="main", username=f"owner{size}-{n}@example.com") for n in range(5000 // size)]
        for owner in owners:
            await start_sessions(worker, owner.username, size)
        with meter.of(f"revokeAll of {size}, a session", size * len(owners)):
            identities = [owner.identity for owner in owners]
            await _run_concurrently(identities, lambda one: worker.revocations.revoke_all(one.shard, one.subject))
    _print("")


async def _measure_index(
    worker: Worker, meter: _Meter, size: int, spend: Callable[[RefreshToken], Awaitable[None]]
) -> None:
    """Measure the refresh of a user with `size` sessions, which are all in one index."""
    sessions = await start_sessions(worker, f"hot{size}@example.com", size)
    while len(sessions) < CALLS // 5:
        sessions += await start_sessions(worker, f"hot{size}-{len(sessions)}@example.com", size)
    some = [token for _, text in sessions[: CALLS // 5] if (token := KEYRING.parse_refresh_token(text))]
    with meter.of(f"spend, one of {size}", len(some)):
        await _run_concurrently(some, spend)


async def _start(worker: Worker, username: str, sessions: list[Session]) -> None:
    sessions += await start_sessions(worker, username, 1)


class _Meter:
    """Prints the differences of the counters of INFO between the begin and the end of a block."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def of(self, name: str, count: int) -> _Meter:
        self._name, self._count = name, count
        return self

    def __enter__(self) -> None:
        self._before = self._read()

    def __exit__(self, *_: object) -> None:
        inside, whole, sent, written = (
            (after - before) / self._count for before, after in zip(self._before, self._read(), strict=True)
        )
        _print(f"{self._name:28} {inside:6.1f} µs {whole * 1e6:6.1f} µs {sent:6.0f} bytes {written:6.0f} bytes")

    def _read(self) -> tuple[float, ...]:
        info: dict[str, Any] = self._deployment.store.info("everything")
        inside = sum(info.get(f"cmdstat_{name}", {"usec": 0})["usec"] for name in ("evalsha", "eval", "get"))
        whole = cpu_seconds(self._deployment.redis.process.pid)
        return inside, whole, info["master_repl_offset"], info["aof_current_size"]


# Requests


async def _measure_requests(deployment: Deployment) -> None:
    """Print the processor time of one worker and of Redis for each kind of request."""
    _print("service: processor time of a request, in the worker and in Redis")
    with tempfile.TemporaryDirectory() as folder, running_service(Path(folder), deployment.environment()) as service:
        pids = service.process.pid, deployment.redis.process.pid
        async with http_client_for(service) as http, worker_on(deployment) as worker:
            logins = [login_form(ALICE) | PHONE_APP.credentials] * LOGINS
            await _measure_posts("password", pids, http, TOKEN, logins)
            sessions = await start_sessions(worker, "somebody@example.com", 2_000)
            refreshes = [
                PHONE_APP.credentials | {"grant_type": "refresh_token", "refresh_token": token} for _, token in sessions
            ]
            await _measure_posts("refresh", pids, http, TOKEN, refreshes)
            await _measure_posts("refresh, repeated", pids, http, TOKEN, refreshes)
            codes = [await make_code(worker) for _ in range(500)]
            exchanges = [
                PHONE_APP.credentials
                | {"grant_type": "authorization_code", "code": code, "redirect_uri": "http://127.0.0.1:9000/callback"}
                for code in codes
            ]
            await _measure_posts("code exchange", pids, http, TOKEN, exchanges)
            introspections = [
                {"client_id": "gateway", "client_secret": "gateway-secret", "token": t} for t, _ in sessions
            ]
            await _measure_posts("introspect", pids, http, INTROSPECT, introspections)
            tokens = [token for token, _ in sessions]
            await _measure("verify", pids, tokens, lambda token: http.get(VERIFY, headers=bearer(token)))
            revoked = [PHONE_APP.credentials | {"token": token} for _, token in sessions[1:]]
            await _measure_posts("revoke", pids, http, REVOKE, revoked)


async def _measure_posts(
    name: str, pids: tuple[int, int], http: httpx2.AsyncClient, path: str, forms: Sequence[dict[str, str]]
) -> None:
    await _measure(name, pids, forms, lambda form: http.post(path, data=form))


async def _measure(
    name: str, pids: tuple[int, int], items: Sequence[Item], send: Callable[[Item], Awaitable[httpx2.Response]]
) -> None:
    statuses: dict[int, int] = {}

    async def count_status(item: Item) -> None:
        status = (await send(item)).status_code
        statuses[status] = statuses.get(status, 0) + 1

    before = [cpu_seconds(pid) for pid in pids]
    await _run_concurrently(items, count_status)
    service, store = ((cpu_seconds(pid) - start) / len(items) * 1e6 for pid, start in zip(pids, before, strict=True))
    _print(f"{name:28} {service:8.0f} µs {store:6.0f} µs   {statuses}")


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
