"""The time until a change of the registry is in force at every worker.

A client is added, rotated and deleted under load.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

import httpx2
import msgspec

from benchmarks.load import LoadFailed
from benchmarks.results import Rows
from benchmarks.testbed import Testbed
from service.config.settings import load_settings
from service.crypto.generated_secrets import hash_generated_secret
from service.protocol.client import Client
from service.worker import Worker
from tests.faults.deployment import PLENTY, http_client_for
from tests.support.clients_and_users import ALICE, GATEWAY, MADE_SECRET, PHONE_APP, OAuthClient, tokens_of
from tests.support.servers import ServiceProcess
from tests.support.waiting import MAX_WAIT_SECONDS

IN_FORCE = "a change of a client is in force at four workers, the last of them"
WORKERS = 4
PAUSE_SECONDS = 0.005
OLD, NEW = OAuthClient("changing", "o" * 43), OAuthClient("changing", "n" * 43)
FIRST = Client(client_id="changing", client_secret_hash=hash_generated_secret("o" * 43))
SECOND = msgspec.structs.replace(FIRST, client_secret_hash=hash_generated_secret("n" * 43))


def measure_changes(testbed: Testbed, rounds: int) -> Rows:
    """Return the milliseconds from the end of a change in Redis until the last worker applies it."""
    with ExitStack() as running:
        workers = [
            running.enter_context(testbed.running(on_all_cores=True, TOKEN_SERVICE_CLIENT_ATTEMPTS=PLENTY))
            for _ in range(WORKERS)
        ]
        return {IN_FORCE: asyncio.run(_measure(testbed, workers, rounds))}


async def _measure(testbed: Testbed, workers: Sequence[ServiceProcess], rounds: int) -> dict[str, list[float]]:
    measured: dict[str, list[float]] = {"added": [], "rotated": [], "deleted": []}
    is_over = asyncio.Event()
    worker = Worker(load_settings(testbed.deployment.environment()))
    async with _http_clients_for(workers) as workers_http, _http_clients_for(workers) as loaded_http:

        async def change(kind: str, work: Awaitable[object], client: OAuthClient, status: int) -> None:
            await work
            measured[kind].append(
                max(await asyncio.gather(*(_measure_until(http, client, status) for http in workers_http)))
            )

        load = [asyncio.create_task(_send_load(http, is_over)) for http in loaded_http]
        for _ in range(rounds):
            # All workers have now cached that there is no such client.
            await asyncio.gather(*(_measure_until(http, OLD, 401) for http in workers_http))
            await change("added", _put(worker, FIRST), OLD, 200)
            await change("rotated", _put(worker, SECOND), OLD, 401)
            await asyncio.gather(*(_measure_until(http, NEW, 200) for http in workers_http))
            await change("deleted", worker.registry.delete_client(SECOND, origins=()), NEW, 401)
        is_over.set()
        await asyncio.gather(*load)
    await worker.close()
    return measured


@asynccontextmanager
async def _http_clients_for(workers: Sequence[ServiceProcess]) -> AsyncIterator[list[httpx2.AsyncClient]]:
    async with AsyncExitStack() as opened:
        yield [await opened.enter_async_context(http_client_for(worker)) for worker in workers]


async def _measure_until(http: httpx2.AsyncClient, client: OAuthClient, status: int) -> float:
    """Return the milliseconds until the worker answers with this status."""
    started = time.perf_counter()
    while (response := await client.revoke(http, "x")).status_code != status:
        if time.perf_counter() - started > MAX_WAIT_SECONDS:
            raise LoadFailed(f"a worker still answers {response.status_code}, not {status}")
        await asyncio.sleep(PAUSE_SECONDS)
    return (time.perf_counter() - started) * 1000


async def _send_load(http: httpx2.AsyncClient, is_over: asyncio.Event) -> None:
    """Send requests of clients that do not change. Raises LoadFailed unless all are answered 200."""
    tokens = {client: tokens_of(await client.log_in(http, ALICE)) for client in (PHONE_APP, MADE_SECRET)}
    while not is_over.is_set():
        responses = {client: await client.refresh(http, tokens[client]["refresh_token"]) for client in tokens}
        introspected = await GATEWAY.introspect(http, tokens[PHONE_APP]["access_token"])
        statuses = {response.status_code for response in (*responses.values(), introspected)}
        if statuses != {200}:
            raise LoadFailed(f"another client is answered {statuses}")
        tokens = {client: tokens_of(response) for client, response in responses.items()}


async def _put(worker: Worker, client: Client) -> None:
    await worker.registry.put_client(client, old_origins=(), new_origins=(), narrowing=None)
