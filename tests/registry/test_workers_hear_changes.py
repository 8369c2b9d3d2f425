"""Four workers under load while clients are added, rotated and deleted: seen by all, felt by nobody else."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

import httpx2
import msgspec
import pytest

from service.app import Parts
from service.hashing import hash_made_secret
from service.protocol.client import Client
from service.settings import load_settings
from tests.cast import ALICE, GATEWAY, MADE_SECRET, PHONE_APP, App, tokens_of
from tests.conftest import environment_of
from tests.faults.stage import PLENTY
from tests.servers import RedisServer, ServiceProcess, running_service
from tests.waiting import wait_until

WORKERS = 4
ROUNDS = 3
BOUND_SECONDS = 1.0
PAUSE_SECONDS = 0.005


@pytest.fixture
def workers(own_redis: RedisServer, tmp_path: Path) -> Iterator[list[ServiceProcess]]:
    """Each a process with a memory of its own."""
    environment = environment_of(own_redis, TOKEN_SERVICE_CLIENT_ATTEMPTS=PLENTY)
    with ExitStack() as running:
        started = [running.enter_context(running_service(tmp_path, environment, wait_for=None)) for _ in range(WORKERS)]
        for worker in started:
            wait_until(lambda worker=worker: worker.status("/readyz") == 200, "a worker")
        yield started
        for worker in started:  # all at once, not one after the other
            worker.process.terminate()


@pytest.fixture
async def parts(own_redis: RedisServer) -> AsyncIterator[Parts]:
    """What changes the registry."""
    parts = Parts(load_settings(environment_of(own_redis)))
    yield parts
    await parts.close()


@asynccontextmanager
async def ways_to(workers: Sequence[ServiceProcess]) -> AsyncIterator[list[httpx2.AsyncClient]]:
    async with AsyncExitStack() as open_ways:
        yield [
            await open_ways.enter_async_context(httpx2.AsyncClient(base_url=worker.url, timeout=10))
            for worker in workers
        ]


async def use(http: httpx2.AsyncClient, statuses: list[int], is_over: asyncio.Event) -> None:
    """What the clients do that nobody touches."""
    tokens = {app: tokens_of(await app.log_in(http, ALICE)) for app in (PHONE_APP, MADE_SECRET)}
    while not is_over.is_set():
        for app in tokens:
            answer = await app.refresh(http, tokens[app]["refresh_token"])
            statuses.append(answer.status_code)
            tokens[app] = tokens_of(answer)
        statuses.append((await GATEWAY.introspect(http, tokens[PHONE_APP]["access_token"])).status_code)
        await asyncio.sleep(0)


async def seconds_until(http: httpx2.AsyncClient, app: App, status: int) -> float:
    """After how long this worker says so, and goes on saying so."""
    started = time.monotonic()
    while (await app.revoke(http, "x")).status_code != status:
        assert time.monotonic() - started < BOUND_SECONDS
        await asyncio.sleep(PAUSE_SECONDS)
    passed = time.monotonic() - started
    for _ in range(3):
        assert (await app.revoke(http, "x")).status_code == status
    return passed


@pytest.mark.clause("decided-registry-change-seen", "decided-client-deleted", "6819-5.2.3.6-secret-revoked")
async def test_changes_are_in_force_at_four_workers_within_a_second_and_nobody_else_notices(
    workers: list[ServiceProcess], parts: Parts
) -> None:
    old, new = App("changing", "o" * 43), App("changing", "n" * 43)
    first = Client(client_id="changing", client_secret_hash=hash_made_secret("o" * 43))
    second = msgspec.structs.replace(first, client_secret_hash=hash_made_secret("n" * 43))
    seconds: dict[str, list[float]] = {"added": [], "rotated": [], "deleted": []}
    statuses: list[int] = []
    is_over = asyncio.Event()

    async with ways_to(workers) as ways, ways_to(workers) as loaded:

        async def change(what: str, make: Callable[[], Awaitable[None]], app: App, status: int) -> None:
            await make()
            seconds[what] += await asyncio.gather(*(seconds_until(http, app, status) for http in ways))

        load = [asyncio.create_task(use(http, statuses, is_over)) for http in loaded]
        for _ in range(ROUNDS):
            # All have heard of it, and remember that there is none.
            assert {(await old.revoke(http, "x")).status_code for http in ways} == {401}
            await change("added", lambda: put(parts, first), old, 200)
            await change("rotated", lambda: put(parts, second), old, 401)
            assert {(await new.revoke(http, "x")).status_code for http in ways} == {200}
            await change("deleted", lambda: parts.registry.delete_client(second, origins=()), new, 401)
        is_over.set()
        await asyncio.gather(*load)

    for what, found in seconds.items():
        sys.stdout.write(f"{what}: median {median(found) * 1000:.0f} ms, most {max(found) * 1000:.0f} ms\n")
    sys.stdout.write(f"requests of others: {len(statuses)}\n")
    assert set(statuses) == {200}
    assert len(statuses) > WORKERS * ROUNDS
    assert max(map(max, seconds.values())) < BOUND_SECONDS


async def put(parts: Parts, client: Client) -> None:
    await parts.registry.put_client(client, old_origins=(), new_origins=(), loss=None)
