"""A seed writes the fields that were edited in the file, and never what the console changed in other fields."""

import io
from collections import Counter
from dataclasses import dataclass

import msgspec
import pytest
import redis

from service.protocol.client import Client
from service.protocol.user import User, identify_user
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.read import parse_seed
from service.worker import Worker
from tests.registry.contents import IDENTITY, everything, find_alice, find_client
from tests.registry.seeds import OTHER_HASH, PASSWORD_HASH, SECRET_HASH, SeedText, make_seeding
from tests.store.sessions import Sessions
from tests.support.events import events_of

FIRST = SeedText()
EDITED = FIRST.text.replace("name: Alice", "name: Another").replace(
    "web-shop, client_secret_hash", "web-shop, client_name: Another, client_secret_hash"
)
"""The first file with another name of the user and of the client, and no other edit."""


async def change_at_the_console(worker: Worker) -> None:
    """Rotate a secret with an overlap, and set a password of a user, who is disabled and gets another role."""
    shop, alice = await find_client(worker, "web-shop"), await find_alice(worker)
    rotated = msgspec.structs.replace(
        shop,
        client_secret_hash=OTHER_HASH,
        previous_secret_hash=SECRET_HASH,
        previous_secret_until_ms=2**50,
        disabled=True,
        scope="realm:main role:partner",
    )
    await worker.registry.clients.put(rotated)
    changed = msgspec.structs.replace(alice, disabled=True, password_hash=OTHER_HASH, roles=("partner",))
    await worker.registry.users.put(changed)


@dataclass(frozen=True)
class Edit:
    """An edit of the first file, and the fields of the records that it decides over."""

    before: str
    after: str
    alice: dict[str, object]
    shop: dict[str, object]


EDITS = {
    "name": Edit("name: Alice", "name: Another", {"name": "Another"}, {}),
    "password": Edit(
        f'{PASSWORD_HASH}", roles: [enduser, organisation]',
        f'{SECRET_HASH}", roles: [enduser, organisation]',
        {"password_hash": SECRET_HASH},
        {},
    ),
    "roles": Edit("roles: [enduser, organisation]", "roles: [enduser]", {"roles": ("enduser",)}, {}),
    "secret": Edit(
        SECRET_HASH,
        PASSWORD_HASH,
        {},
        {"client_secret_hash": PASSWORD_HASH, "previous_secret_hash": None, "previous_secret_until_ms": 0},
    ),
    "scope": Edit('"realm:main role:enduser"}', '"realm:main role:admin"}', {}, {"scope": "realm:main role:admin"}),
    "disabled user": Edit("name: Alice}", "name: Alice, disabled: false}", {"disabled": False}, {}),
    "disabled client": Edit(
        "web-shop, client_secret_hash", "web-shop, disabled: false, client_secret_hash", {}, {"disabled": False}
    ),
}


@pytest.mark.clause("decided-seed-keeps-console-changes", "decided-seed-adds-and-updates")
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
async def test_an_edited_field_decides_over_that_field_alone(worker: Worker, seeding: Seeding, edit: Edit) -> None:
    await seeding.apply(FIRST.seed)
    await change_at_the_console(worker)
    shop, alice = await find_client(worker, "web-shop"), await find_alice(worker)
    assert edit.before in FIRST.text
    await seeding.apply(parse_seed(FIRST.text.replace(edit.before, edit.after).encode()))

    after = await find_alice(worker)
    assert msgspec.structs.replace(alice, revision=after.revision, **edit.alice) == after
    assert msgspec.structs.replace(shop, **edit.shop) == await find_client(worker, "web-shop")


async def test_a_role_that_is_listed_twice_counts_once(worker: Worker, seeding: Seeding) -> None:
    repeated = parse_seed(FIRST.text.replace("[enduser, organisation]", "[enduser, organisation, enduser]").encode())
    await seeding.apply(repeated)

    assert (await find_alice(worker)).roles == ("enduser", "organisation")
    assert (await seeding.compare(FIRST.seed, force=True)).changes == 0


@pytest.mark.clause("decided-seed-disabled", "decided-user-change-ends-tokens", "decided-seed-ends-sessions")
async def test_disabled_in_the_file_ends_sessions(sessions: Sessions, seeding: Seeding) -> None:
    disabled = FIRST.text.replace("phone-app,", "phone-app, disabled: true,")
    disabled = disabled.replace("bob@example.com,", "bob@example.com, disabled: true,")
    await seeding.apply(FIRST.seed)
    session = await sessions.start()
    difference = await seeding.compare(parse_seed(disabled.encode()))
    await seeding.apply(parse_seed(disabled.encode()))

    assert [(change.name, list(map(str, change.fields)), change.ends_sessions) for change in difference.details] == [
        ("phone-app", ["disabled: false → true"], True),
        ("bob@example.com", ["disabled: false → true"], True),
    ]
    assert sessions.live(session) == [False]
    bob = await sessions.worker.registry.users.find(identify_user("main", "bob@example.com"))
    assert bob is not None
    assert bob.disabled
    assert (await find_client(sessions.worker)).disabled

    await seeding.apply(FIRST.seed)  # no longer in the file
    assert (await find_client(sessions.worker)).disabled
    await seeding.apply(parse_seed(disabled.replace("disabled: true", "disabled: false").encode()))
    assert not (await find_client(sessions.worker)).disabled


@pytest.mark.clause("decided-seed-deleted-stays-deleted")
async def test_edited_entry_does_not_restore_a_deleted_record(
    worker: Worker, seeding: Seeding, store: redis.Redis
) -> None:
    await seeding.apply(FIRST.seed)
    store.delete("client:{registry}:web-shop", f"user:{{{IDENTITY.shard}}}:{IDENTITY.digest}")
    outcome = await seeding.apply(parse_seed(EDITED.encode()))

    assert outcome.changes == 0
    assert await worker.registry.clients.find("web-shop") is None
    assert await worker.registry.users.find(IDENTITY) is None
    forced = await seeding.apply(parse_seed(EDITED.encode()), force=True)
    assert (forced.counts["clients"], forced.counts["users"]) == (
        Counter(added=1, unchanged=1),
        Counter(added=1, unchanged=1),
    )
    assert ((await find_client(worker, "web-shop")).client_name, (await find_alice(worker)).name) == ("Another",) * 2


async def test_entry_sets_its_fields_of_a_console_record(worker: Worker, seeding: Seeding) -> None:
    made = Client(client_id="web-shop", client_name="Shop", introspect=True, client_secret_hash=OTHER_HASH)
    await worker.registry.clients.put(made)
    await seeding.apply(FIRST.seed)

    shop = await find_client(worker, "web-shop")
    assert (shop.client_name, shop.introspect, shop.client_secret_hash) == ("Shop", True, SECRET_HASH)


@pytest.mark.clause("decided-client-public-warned")
async def test_removed_secret_makes_the_client_public(worker: Worker, seeding: Seeding, json_logs: io.StringIO) -> None:
    await seeding.apply(FIRST.seed)
    public = parse_seed(FIRST.text.replace(f' client_secret_hash: "{SECRET_HASH}",', "").encode())
    difference = await seeding.compare(public)
    events_of(json_logs)
    outcome = await seeding.apply(public)

    (change,) = difference.details
    assert [str(field) for field in change.fields] == ["client_secret: set → removed: the client becomes public"]
    assert outcome.warnings == ("web-shop: it no longer has a secret, so anyone may use its client_id",)
    assert [name for name, _ in events_of(json_logs)] == ["client_made_public", "seed_applied"]


@pytest.mark.clause("decided-seed-prune", "decided-seed-keeps-console-changes")
async def test_pruning_keeps_disabled_external_users(worker: Worker, seeding: Seeding) -> None:
    """Without a record the user could log in again."""
    carol = User(realm="cep", username="carol", roles=("enduser",))
    listed = f"{FIRST.text}  - {{username: carol, realm: cep, roles: [enduser]}}\n"
    await seeding.apply(parse_seed(listed.encode()))
    await worker.registry.users.put(msgspec.structs.replace(carol, disabled=True))
    outcome = await seeding.apply(FIRST.seed, prune=True)
    found = await worker.registry.users.find(carol.identity)

    assert outcome.counts["users"]["removed"] == 0
    assert found is not None
    assert found.disabled
    assert await worker.registry.seeds.find(carol.identity) is None
    await seeding.apply(parse_seed(listed.encode()))
    found = await worker.registry.users.find(carol.identity)
    assert found is not None
    assert found.disabled


@pytest.mark.clause("decided-seed-digest-keyed")
async def test_equal_passwords_of_two_users_have_different_digests(worker: Worker, store: redis.Redis) -> None:
    text = "users: [{username: a@example.com, password: long enough}, {username: b@example.com, password: long enough}]"
    await make_seeding(worker.redis).apply(parse_seed(text.encode()))
    found = [msgspec.json.decode(value) for key in store.scan_iter("seed:{???}") for value in store.hvals(key)]

    assert len({entry["password"] for entry in found}) == 2
    assert not [key for key, dump in everything(store).items() if b"long enough" in (dump or b"")]
