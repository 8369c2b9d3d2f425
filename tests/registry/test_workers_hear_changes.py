"""Four workers under load while clients are added, rotated and deleted. Requests of other clients never fail."""

from __future__ import annotations

from contextlib import AsyncExitStack

import msgspec
import pytest

from service.crypto.generated_secrets import hash_generated_secret
from service.protocol.client import Client
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving
from tests.faults.deployment import PLENTY
from tests.support.clients_and_users import OAuthClient
from tests.support.invalidations import await_invalidations
from tests.support.loop_time import LoopTime

WORKERS = 4
ROUNDS = 3
OLD, NEW = OAuthClient("changing", "o" * 43), OAuthClient("changing", "n" * 43)
FIRST = Client(client_id="changing", client_secret_hash=hash_generated_secret("o" * 43))
SECOND = msgspec.structs.replace(FIRST, client_secret_hash=hash_generated_secret("n" * 43))


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
