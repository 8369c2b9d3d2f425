"""A record or seed entry that cannot be read is left as it is, and keeps nothing else waiting."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import redis

from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.entries import Seed
from service.registry.seed_file.read import parse_seed
from service.store.keys import registry_key, user_key, user_seed_key
from service.worker import Worker
from tests.registry.contents import IDENTITY
from tests.registry.seeds import SeedText
from tests.support.clients_and_users import WEB_SHOP

pytestmark = pytest.mark.clause("decided-newer-record", "decided-unreadable-seed-entry")

FIRST = SeedText()
EDITS = ("web-shop, client_secret_hash", "name: Alice", 'issuer: "https://login.example.org"', "bob@example.com,")
AFTER = (
    "web-shop, client_name: Edited, client_secret_hash",
    "name: Edited",
    "issuer: https://id.example",
    "eve@example.com,",
)


def make_edited() -> Seed:
    """Return the first seed with another entry of each kind, and with a new user."""
    text = FIRST.text
    for before, after in zip(EDITS, AFTER, strict=True):
        assert before in text
        text = text.replace(before, after)
    return parse_seed(text.encode())


class Place(NamedTuple):
    """The keys of a record and of its seed entry as last applied."""

    name: str
    record: str
    seed: str
    seed_field: str

    def write(self, store: redis.Redis, text: str) -> None:
        store.hset(self.record, "record", text) if self.record.startswith("user:") else store.set(self.record, text)

    def read(self, store: redis.Redis) -> tuple[object, object]:
        return store.dump(self.record), store.hget(self.seed, self.seed_field)


ALICE = Place("alice@example.com", user_key(IDENTITY), user_seed_key(IDENTITY.shard), IDENTITY.digest)
PLACES = (
    Place("cep", registry_key("realm", "cep"), registry_key("seed"), "realm:cep"),
    Place("web-shop", registry_key("client", "web-shop"), registry_key("seed"), "client:web-shop"),
    ALICE,
)
at_each_place = pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
unreadable = pytest.mark.parametrize("text", ["not JSON", "[]", '{"client_id":1,"username":"alice","name":1}'])


@at_each_place
@unreadable
async def test_unreadable_seed_entry_is_applied_by_force_only(
    seeding: Seeding, store: redis.Redis, place: Place, text: str
) -> None:
    await seeding.apply(FIRST.seed)
    store.hset(place.seed, place.seed_field, text)
    before = place.read(store)

    # A version that can read the entry must apply the file again, so it does not count as being in force.
    for changes in (len(EDITS) - 1, 0):
        outcome = await seeding.apply(make_edited())
        assert (outcome.changes, place.read(store)) == (changes, before)
        [warning] = outcome.warnings
        assert warning.startswith(f"{place.name}: left unchanged, because the entry as last applied cannot be read: ")
        assert "seed --force overwrites it" in warning

    for force in (True, False):
        outcome = await seeding.apply(make_edited(), force=force)
        assert (outcome.changes, outcome.warnings) == (int(force), ())


async def test_seed_with_an_unreadable_entry_is_in_force(worker: Worker, store: redis.Redis) -> None:
    store.delete(registry_key("seed"))
    store.set(registry_key("client", WEB_SHOP.client_id), "not JSON")
    await worker.seed_keeper.apply()

    assert await worker.seed_keeper.is_in_force()


@at_each_place
@unreadable
async def test_unreadable_record_outlives_every_seed(
    seeding: Seeding, store: redis.Redis, place: Place, text: str
) -> None:
    await seeding.apply(FIRST.seed)
    place.write(store, text)
    await assert_left_alone(seeding, store, place)


@pytest.mark.parametrize(
    "newer", [lambda store: store.hdel(ALICE.record, "revision"), lambda store: store.set(ALICE.record, "3")]
)
async def test_user_record_of_another_form_outlives_every_seed(
    seeding: Seeding, store: redis.Redis, newer: Callable[[redis.Redis], object]
) -> None:
    await seeding.apply(FIRST.seed)
    newer(store)
    await assert_left_alone(seeding, store, ALICE)


async def assert_left_alone(seeding: Seeding, store: redis.Redis, place: Place) -> None:
    before, seeding.shards = place.read(store), [IDENTITY.shard]
    edited, forced, pruned = (
        await seeding.apply(make_edited()),
        await seeding.apply(make_edited(), force=True),
        await seeding.apply(parse_seed(b"users: []"), prune=True),
    )

    assert place.read(store) == before
    assert (edited.changes, forced.changes) == (len(EDITS) - 1, 0)
    for outcome in (edited, forced, pruned):
        [warning] = outcome.warnings
        assert "left unchanged, because " in warning
