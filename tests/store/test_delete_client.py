"""A client deleted together with its web origins, which leaves a pending scan."""

import redis

from service.protocol.client import Client
from service.worker import Worker
from tests.support.origins import is_origin

APP = Client(client_id="app", redirect_uris=("https://a.deleted/x", "https://b.deleted/x"))
OTHER = Client(client_id="other", redirect_uris=("https://a.deleted/x",))


async def test_record_and_origins_go_and_all_sessions_are_to_end(worker: Worker, store: redis.Redis) -> None:
    """A second run changes nothing: the answer of the first was lost."""
    await worker.registry.clients.put(APP, Client(client_id="app", scope="realm:main"))  # a smaller loss
    await worker.registry.clients.put(OTHER)
    for _ in range(2):
        await worker.registry.clients.delete(APP)

        assert not store.exists("client:{registry}:app")
        assert await worker.registry.clients.find("other") == OTHER
        assert await is_origin(worker, "https://a.deleted")
        assert not await is_origin(worker, "https://b.deleted")
        assert (await worker.registry.list_pending_scans("pending_scans"))["app"].startswith("refresh:")
