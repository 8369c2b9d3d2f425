"""A dry run reports what a load would do and writes nothing. Force also overwrites changes made elsewhere."""

from collections import Counter

import msgspec
import pytest
import redis

from service.protocol.user import User
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.report import Change
from service.worker import Worker
from tests.registry.contents import everything, find_alice, find_client
from tests.registry.seeds import OTHER_HASH, SECRET_HASH, SeedText

FIRST = SeedText()
SECOND = FIRST.but(
    scope="realm:main role:organisation",
    grants="password, refresh_token",
    password_hash=OTHER_HASH,
    roles="organisation",
    name="Another",
)
BOB = User(realm="main", username="bob@example.com")
HASHES = ("argon2", "sha256:", "sealed")


async def change_at_the_console(worker: Worker) -> None:
    """Rotate a secret with an overlap, disable a user and delete another."""
    shop, alice = await find_client(worker, "web-shop"), await find_alice(worker)
    rotated = msgspec.structs.replace(
        shop, client_secret_hash=OTHER_HASH, previous_secret_hash=SECRET_HASH, previous_secret_until_ms=2**50
    )
    await worker.registry.clients.put(rotated)
    await worker.registry.users.put(msgspec.structs.replace(alice, disabled=True))
    await worker.registry.users.delete(BOB.identity)


def lines_of(change: Change) -> list[str]:
    return [str(field) for field in change.fields]


@pytest.mark.clause("decided-seed-dry-run")
async def test_dry_run_lists_changes_without_secrets(seeding: Seeding, store: redis.Redis) -> None:
    await seeding.apply(FIRST.seed)
    before = everything(store)
    difference = await seeding.compare(SECOND.seed)
    phone, alice = difference.details

    assert lines_of(phone) == [
        "grant_types: password, authorization_code, refresh_token → password, refresh_token",
        "scope: realm:main role:enduser role:organisation → realm:main role:organisation",
    ]
    assert lines_of(alice) == [
        "password: changed",
        "roles: enduser, organisation → organisation",
        "name: Alice → Another",
    ]
    assert (phone.ends_sessions, alice.ends_sessions) == (True, True)
    assert not [word for word in HASHES if word in msgspec.json.encode(difference.details).decode()]
    assert before == everything(store)


@pytest.mark.clause("decided-seed-force")
async def test_force_overrides_other_changes(worker: Worker, seeding: Seeding) -> None:
    await seeding.apply(FIRST.seed)
    shop, alice = await find_client(worker, "web-shop"), await find_alice(worker)
    await change_at_the_console(worker)
    difference = await seeding.compare(FIRST.seed, force=True)
    outcome = await seeding.apply(FIRST.seed, force=True)

    assert [(change.name, change.action, lines_of(change)) for change in difference.details] == [
        ("web-shop", "update", ["client_secret: changed"]),
        ("alice@example.com", "update", ["disabled: true → false"]),
        ("bob@example.com", "add", []),
    ]
    assert outcome.counts["clients"] == difference.counts["clients"] == Counter(updated=1, unchanged=1)
    assert outcome.counts["users"] == difference.counts["users"] == Counter(added=1, updated=1)
    assert shop == await find_client(worker, "web-shop")
    assert alice == msgspec.structs.replace(await find_alice(worker), revision=alice.revision)
