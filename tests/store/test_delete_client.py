"""A client deleted together with its web origins and its pending sweep."""

import redis

from service.protocol.client import Client
from service.worker import Worker
from tests.support.origins import is_origin

APP, OTHER = Client(client_id="app"), Client(client_id="other")
ORIGINS = ["https://a.deleted", "https://b.deleted"]


async def put(worker: Worker, client: Client, *origins: str) -> None:
    await worker.registry.put_client(client, old_origins=(), new_origins=origins, narrowing=None)


async def test_the_record_is_gone_and_all_its_sessions_are_to_end(worker: Worker) -> None:
    await put(worker, APP)
    await put(worker, OTHER)
    await worker.registry.delete_client(APP, origins=())

    assert await worker.registry.find_client("app") is None
    assert await worker.registry.find_client("other") == OTHER
    assert (await worker.registry.list_pending_scans("pending_sweeps"))["app"].startswith("refresh:")


async def test_an_origin_stays_while_another_client_has_it(worker: Worker) -> None:
    await put(worker, APP, *ORIGINS)
    await put(worker, OTHER, ORIGINS[0])
    await worker.registry.delete_client(APP, origins=ORIGINS)

    assert await is_origin(worker, ORIGINS[0])
    assert not await is_origin(worker, ORIGINS[1])


async def test_a_smaller_loss_that_was_owed_grows(worker: Worker) -> None:
    await worker.registry.put_client(APP, old_origins=(), new_origins=(), narrowing="grant_or_scope")
    await worker.registry.delete_client(APP, origins=())

    assert (await worker.registry.list_pending_scans("pending_sweeps"))["app"].startswith("refresh:")


async def test_a_second_run_changes_nothing(worker: Worker, store: redis.Redis) -> None:
    """The answer of the first run was lost."""
    await put(worker, APP, *ORIGINS)
    await worker.registry.delete_client(APP, origins=ORIGINS)
    await worker.registry.delete_client(APP, origins=ORIGINS)

    assert not [key for key in store.scan_iter("origin:*") if key.endswith(".deleted")]
    assert not store.exists("client:{registry}:app")
    assert (await worker.registry.list_pending_scans("pending_sweeps"))["app"].startswith("refresh:")
