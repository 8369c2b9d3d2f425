"""A client's record written together with its web origins and the sweep that it owes."""

from collections.abc import Sequence

from service.app import Parts
from service.protocol.client import Client

CLIENT = Client(client_id="app", client_name="Ä", redirect_uris=("https://a.example/x",), grant_types=("password",))


async def put(
    parts: Parts, old: Sequence[str] = (), new: Sequence[str] = (), *, client_id: str = "app", owes: bool = False
) -> None:
    client = Client(client_id=client_id)
    await parts.registry.put_client(client, old_origins=old, new_origins=new, owes_sweep=owes)


async def test_the_record_is_read_as_it_was_written(parts: Parts) -> None:
    await parts.registry.put_client(CLIENT, old_origins=(), new_origins=(), owes_sweep=False)

    assert await parts.registry.find_client("app") == CLIENT
    assert await parts.registry.find_client("App") is None


async def test_origins_come_and_go_with_the_client(parts: Parts) -> None:
    await put(parts, new=["https://a.example", "https://b.example"])
    assert await parts.registry.is_origin("https://a.example")
    await put(parts, old=["https://a.example", "https://b.example"], new=["https://b.example"])

    assert not await parts.registry.is_origin("https://a.example")
    assert await parts.registry.is_origin("https://b.example")


async def test_an_origin_stays_while_another_client_has_it(parts: Parts) -> None:
    await put(parts, new=["https://a.example"])
    await put(parts, new=["https://a.example"], client_id="other")
    await put(parts, old=["https://a.example"])

    assert await parts.registry.is_origin("https://a.example")
    await put(parts, old=["https://a.example"], client_id="other")
    assert not await parts.registry.is_origin("https://a.example")


async def test_a_sweep_is_owed_until_it_is_settled(parts: Parts) -> None:
    await put(parts, owes=True)
    await put(parts, owes=True, client_id="other")
    await put(parts)

    assert await parts.registry.find_owed_sweeps() == ["app", "other"]
    await parts.registry.settle_sweeps(["app"])
    assert await parts.registry.find_owed_sweeps() == ["other"]
