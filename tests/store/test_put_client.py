"""A client's record written together with its web origins and its pending scan."""

from collections.abc import Sequence

import pytest
import redis

from service.protocol.client import Client
from service.worker import Worker
from tests.support.origins import is_origin

FULL = Client(client_id="app", grant_types=("password", "refresh_token"), scope="realm:main role:enduser")
LESS_SCOPE = Client(client_id="app", grant_types=("password", "refresh_token"), scope="realm:main")
NO_REFRESH = Client(client_id="app", grant_types=("password",), scope="realm:main role:enduser")


def make(*origins: str, client_id: str = "app") -> Client:
    return Client(client_id=client_id, redirect_uris=tuple(f"{origin}/x" for origin in origins))


async def list_pending(worker: Worker) -> dict[str, str]:
    """Return what each client lost whose sessions must be scanned."""
    marks = await worker.registry.list_pending_scans("pending_scans")
    return {name: mark.split(":")[0] for name, mark in marks.items()}


async def test_an_origin_stays_while_a_client_has_it(worker: Worker) -> None:
    both, one = make("https://a.example", "https://b.example"), make("https://b.example")
    await worker.registry.clients.put(both)
    await worker.registry.clients.put(make("https://a.example", client_id="other"))
    await worker.registry.clients.put(one, both)
    assert await is_origin(worker, "https://a.example")
    assert await is_origin(worker, "https://b.example")

    await worker.registry.clients.put(make(client_id="other"), make("https://a.example", client_id="other"))
    assert not await is_origin(worker, "https://a.example")


async def test_a_scan_is_pending_until_it_is_cleared(worker: Worker, store: redis.Redis) -> None:
    await worker.registry.clients.put(LESS_SCOPE, FULL)
    marks = await worker.registry.list_pending_scans("pending_scans")
    await worker.registry.clients.put(Client(client_id="app"), LESS_SCOPE)
    await worker.registry.clear_pending_scans("pending_scans", marks)
    assert await list_pending(worker) == {"app": "refresh"}, "changed since it was listed"

    marks = await worker.registry.list_pending_scans("pending_scans")
    await worker.registry.clear_pending_scans("pending_scans", marks)
    assert not store.exists("pending_scans:{registry}")


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        pytest.param([(FULL, NO_REFRESH), (FULL, LESS_SCOPE)], "refresh", id="the greater loss first"),
        pytest.param([(FULL, LESS_SCOPE), (FULL, NO_REFRESH)], "refresh", id="the greater loss last"),
        pytest.param([(FULL, NO_REFRESH), (NO_REFRESH, FULL)], "refresh", id="a change that takes nothing"),
        pytest.param([(FULL, LESS_SCOPE), (FULL, LESS_SCOPE)], "grant_or_scope", id="the same twice"),
    ],
)
async def test_largest_pending_loss_is_kept(
    worker: Worker, changes: Sequence[tuple[Client, Client]], lost: str
) -> None:
    for old, new in changes:
        await worker.registry.clients.put(new, old)

    assert await list_pending(worker) == {"app": lost}
