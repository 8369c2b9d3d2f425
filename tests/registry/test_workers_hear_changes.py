"""Four workers under load while clients are added, rotated and deleted. Requests of other clients never fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import httpx2
import msgspec
import pytest

from service.config.settings import load_settings
from service.crypto.client_secrets import hash_generated_secret
from service.protocol.client import Client
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, environment_of, serving
from tests.faults.deployment import PLENTY
from tests.support.clients_and_users import ALICE, GATEWAY, MADE_SECRET, PHONE_APP, OAuthClient, tokens_of
from tests.support.invalidations import await_invalidations
from tests.support.loop_time import LoopTime
from tests.support.servers import RedisServer, ServiceProcess, running_service
from tests.support.waiting import MAX_WAIT_SECONDS, until, until_status, wait_until

WORKERS = 4
ROUNDS = 3
OLD, NEW = OAuthClient("changing", "o" * 43), OAuthClient("changing", "n" * 43)
FIRST = Client(client_id="changing", client_secret_hash=hash_generated_secret("o" * 43))
SECOND = msgspec.structs.replace(FIRST, client_secret_hash=hash_generated_secret("n" * 43))
MAX_ASKS = 20


@pytest.fixture
def workers(own_redis: RedisServer, tmp_path: Path) -> Iterator[list[ServiceProcess]]:
    """Four processes, each with its own cache."""
    environment = environment_of(own_redis, TOKEN_SERVICE_CLIENT_ATTEMPTS=PLENTY)
    with ExitStack() as running:
        started = [running.enter_context(running_service(tmp_path, environment, wait_for=None)) for _ in range(WORKERS)]
        for worker in started:
            wait_until(lambda worker=worker: worker.status("/readyz") == 200, "a worker")
        yield started
        for worker in started:  # all are started before the first is awaited
            worker.process.terminate()


@pytest.fixture
async def worker(own_redis: RedisServer) -> AsyncIterator[Worker]:
    """The worker that changes the registry."""
    worker = Worker(load_settings(environment_of(own_redis)))
    yield worker
    await worker.close()


@asynccontextmanager
async def ways_to(workers: Sequence[ServiceProcess]) -> AsyncIterator[list[httpx2.AsyncClient]]:
    async with AsyncExitStack() as open_ways:
        yield [
            await open_ways.enter_async_context(httpx2.AsyncClient(base_url=worker.url, timeout=MAX_WAIT_SECONDS))
            for worker in workers
        ]


async def served(ask: Callable[[], Awaitable[httpx2.Response]]) -> httpx2.Response:
    """Repeat the request after a 503, as a client does. On a busy machine a worker may run out of time."""
    for _ in range(MAX_ASKS):
        if (answer := await ask()).status_code != 503:
            return answer
    raise AssertionError(f"{MAX_ASKS} times 503")


async def use(http: httpx2.AsyncClient, statuses: list[int], is_over: asyncio.Event) -> None:
    """Send requests of the clients that are not changed."""
    tokens = {client: tokens_of(await client.log_in(http, ALICE)) for client in (PHONE_APP, MADE_SECRET)}
    while not is_over.is_set():
        for client in tokens:
            answer = await served(partial(client.refresh, http, tokens[client]["refresh_token"]))
            statuses.append(answer.status_code)
            tokens[client] = tokens_of(answer)
        answer = await served(partial(GATEWAY.introspect, http, tokens[PHONE_APP]["access_token"]))
        statuses.append(answer.status_code)


async def comes_to(http: httpx2.AsyncClient, client: OAuthClient, status: int) -> None:
    """Wait until this worker answers with the status, and assert that it goes on doing so."""
    await until_status(lambda: client.revoke(http, "x"), status)
    for _ in range(3):
        assert (await served(partial(client.revoke, http, "x"))).status_code == status


@pytest.mark.clause("decided-registry-change-seen", "decided-client-deleted", "6819-5.2.3.6-secret-revoked")
async def test_four_workers_hear_changes_and_nobody_else_notices(workers: list[ServiceProcess], worker: Worker) -> None:
    statuses: list[list[int]] = [[] for _ in range(WORKERS)]
    is_over = asyncio.Event()

    async with ways_to(workers) as ways, ways_to(workers) as loaded:

        async def change(make: Awaitable[None], client: OAuthClient, status: int) -> None:
            """Make the change, and wait until each worker follows it and has answered requests of other clients."""
            before = list(map(len, statuses))
            await make
            await asyncio.gather(*(comes_to(http, client, status) for http in ways))
            await until(lambda: all(len(found) > count for found, count in zip(statuses, before, strict=True)))

        async with asyncio.TaskGroup() as load:
            for http, found in zip(loaded, statuses, strict=True):
                load.create_task(use(http, found, is_over))
            await until(lambda: all(statuses), "the load")
            for _ in range(ROUNDS):
                # Now each worker has cached that the client does not exist.
                assert {(await served(partial(OLD.revoke, http, "x"))).status_code for http in ways} == {401}
                await change(put(worker, FIRST), OLD, 200)
                await change(put(worker, SECOND), OLD, 401)
                assert {(await served(partial(NEW.revoke, http, "x"))).status_code for http in ways} == {200}
                await change(worker.registry.delete_client(SECOND, origins=()), NEW, 401)
            is_over.set()

    assert {status for found in statuses for status in found} == {200}


@pytest.mark.clause("decided-registry-change-seen", "decided-client-deleted", "6819-5.2.3.6-secret-revoked")
async def test_a_change_is_in_force_when_its_news_arrives(
    registry: None, make_settings: MakeSettings, clock: Clock, held_time: LoopTime
) -> None:
    """No time passes but the half second for which a worker caches that a client does not exist."""
    settings = make_settings(TOKEN_SERVICE_CLIENT_ATTEMPTS=PLENTY)
    async with AsyncExitStack() as open_things:
        worker = Worker(settings)
        open_things.push_async_callback(worker.close)
        ways = [await open_things.enter_async_context(serving(settings, clock)) for _ in range(WORKERS)]

        async def ask(client: OAuthClient) -> set[int]:
            return {(await client.revoke(http, "x")).status_code for http in ways}

        for _ in range(ROUNDS):
            for _ in range(2):  # a worker caches a client from its second use on
                assert await ask(OLD) == {401}
            await put(worker, FIRST)
            held_time.advance(0.5)
            for _ in range(2):
                assert await ask(OLD) == {200}
            await put(worker, SECOND)
            await await_invalidations(worker)
            assert await ask(OLD) == {401}
            for _ in range(2):
                assert await ask(NEW) == {200}
            await worker.registry.delete_client(SECOND, origins=())
            await await_invalidations(worker)
            assert await ask(NEW) == {401}


async def put(worker: Worker, client: Client) -> None:
    await worker.registry.put_client(client, old_origins=(), new_origins=(), narrowing=None)
