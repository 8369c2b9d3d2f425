"""Records of users and realms as they are written and read."""

import msgspec
import pytest
import redis

from service.protocol.user import User, identify_user
from service.worker import Worker
from tests.store.sessions import Sessions
from tests.support.clients_and_users import ALICE

CAROL = User(realm="main", username="Carol@example.com", password_hash="$argon2id$x", roles=("enduser",), name="Çarol")


@pytest.mark.clause("spec-2.3-user-record")
async def test_a_user_is_read_as_written_under_any_spelling_of_the_name(worker: Worker) -> None:
    await worker.registry.put_user(CAROL)
    found = await worker.registry.find_user(identify_user("main", "carol@EXAMPLE.com"))

    assert found is not None
    assert found.revision
    assert msgspec.structs.replace(found, revision="") == CAROL


@pytest.mark.clause("decided-same-name-in-two-realms")
async def test_users_of_one_name_in_two_realms_have_two_records(worker: Worker) -> None:
    await worker.registry.put_user(CAROL)
    await worker.registry.put_user(msgspec.structs.replace(CAROL, realm="cep", name="another"))
    found = await worker.registry.find_users([identify_user(realm, CAROL.username) for realm in ("main", "cep")])

    assert [CAROL.name, "another"] == [user.name for user in found if user]


async def test_every_write_of_a_user_is_a_new_revision(worker: Worker) -> None:
    revisions = set()
    for _ in range(3):
        await worker.registry.put_user(CAROL)
        found = await worker.registry.find_user(CAROL.identity)
        assert found is not None
        revisions.add(found.revision)

    assert len(revisions) == 3


async def test_an_owed_revocation_is_kept_until_it_is_settled(worker: Worker, store: redis.Redis) -> None:
    """It is kept after a change of the record, and also without a record."""
    alice = identify_user("main", ALICE.username)
    await worker.registry.add_pending_users([CAROL.identity, alice])
    await worker.registry.add_pending_users([CAROL.identity])
    await worker.registry.put_user(CAROL)

    owed = {(CAROL.identity.shard, CAROL.identity.subject), (alice.shard, alice.subject)}
    assert set(await worker.registry.list_pending_users()) == owed
    await worker.registry.clear_pending_users([(CAROL.identity.shard, CAROL.identity.subject)])
    assert await worker.registry.list_pending_users() == [(alice.shard, alice.subject)]
    await worker.registry.clear_pending_users([(alice.shard, alice.subject)])
    assert not store.exists("pending_revocations:{registry}")


async def test_nobody_who_owes_anything_is_no_fault(worker: Worker) -> None:
    await worker.registry.add_pending_users([])

    assert await worker.registry.list_pending_users() == []


async def test_what_is_not_there_is_none(worker: Worker) -> None:
    assert await worker.registry.find_user(identify_user("main", "nobody")) is None
    assert await worker.registry.find_client("nobody") is None
    assert await worker.registry.find_realm("cep") is None
    assert await worker.registry.find_seed("nothing") is None
    assert await worker.registry.list_pending_scans("pending_sweeps") == {}
    assert await worker.registry.list_pending_users() == []
    assert await worker.registry.find_users([]) == []


async def test_the_lock_of_the_registry_is_held_by_one(sessions: Sessions) -> None:
    async with sessions.worker.registry.make_lock() as lock:
        await lock.renew()
        held = sessions.store.set("lock:{registry}", "another", nx=True)

    assert held is None
    assert not sessions.store.exists("lock:{registry}")
