"""A client's record written together with its web origins and its pending sweep."""

from collections.abc import Sequence

import pytest
import redis

from service.protocol.client import Client, Narrowing
from service.worker import Worker
from tests.support.origins import is_origin

CLIENT = Client(client_id="app", client_name="Ä", redirect_uris=("https://a.example/x",), grant_types=("password",))


async def put(
    worker: Worker,
    old: Sequence[str] = (),
    new: Sequence[str] = (),
    *,
    client_id: str = "app",
    narrowing: Narrowing | None = None,
) -> None:
    client = Client(client_id=client_id)
    await worker.registry.put_client(client, old_origins=old, new_origins=new, narrowing=narrowing)


async def test_the_record_is_read_as_it_was_written(worker: Worker) -> None:
    await worker.registry.put_client(CLIENT, old_origins=(), new_origins=(), narrowing=None)

    assert await worker.registry.find_client("app") == CLIENT
    assert await worker.registry.find_client("App") is None


async def test_origins_come_and_go_with_the_client(worker: Worker) -> None:
    await put(worker, new=["https://a.example", "https://b.example"])
    assert await is_origin(worker, "https://a.example")
    await put(worker, old=["https://a.example", "https://b.example"], new=["https://b.example"])

    assert not await is_origin(worker, "https://a.example")
    assert await is_origin(worker, "https://b.example")


async def test_an_origin_stays_while_another_client_has_it(worker: Worker) -> None:
    await put(worker, new=["https://a.example"])
    await put(worker, new=["https://a.example"], client_id="other")
    await put(worker, old=["https://a.example"])

    assert await is_origin(worker, "https://a.example")
    await put(worker, old=["https://a.example"], client_id="other")
    assert not await is_origin(worker, "https://a.example")


async def test_a_sweep_is_owed_until_it_is_settled(worker: Worker, store: redis.Redis) -> None:
    await put(worker, narrowing="grant_or_scope")
    await put(worker, narrowing="refresh", client_id="other")
    await put(worker)
    marks = await worker.registry.list_pending_scans("pending_sweeps")

    assert {name: mark.split(":")[0] for name, mark in marks.items()} == {"app": "grant_or_scope", "other": "refresh"}
    await put(worker, narrowing="grant_or_scope")
    await worker.registry.clear_pending_scans("pending_sweeps", marks)
    assert list(await worker.registry.list_pending_scans("pending_sweeps")) == ["app"], "changed since it was listed"
    await worker.registry.clear_pending_scans(
        "pending_sweeps", await worker.registry.list_pending_scans("pending_sweeps")
    )
    assert not store.exists("pending_sweeps:{registry}")


@pytest.mark.parametrize(
    ("losses", "owed"),
    [
        pytest.param(("refresh", "grant_or_scope"), "refresh", id="the greater loss came first, and stays"),
        pytest.param(("grant_or_scope", "refresh"), "refresh", id="the greater loss came last, and counts"),
        pytest.param(("refresh", None), "refresh", id="a change that takes nothing settles nothing"),
        pytest.param(("grant_or_scope", "grant_or_scope"), "grant_or_scope", id="the same twice"),
    ],
)
async def test_of_several_losses_that_are_owed_the_greatest_counts(
    worker: Worker, losses: Sequence[Narrowing | None], owed: Narrowing
) -> None:
    for narrowing in losses:
        await put(worker, narrowing=narrowing)

    marks = await worker.registry.list_pending_scans("pending_sweeps")
    assert {name: mark.split(":")[0] for name, mark in marks.items()} == {"app": owed}
