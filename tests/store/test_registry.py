"""Records of users and realms as they are written and read."""

import msgspec
import pytest
import redis

from service.protocol.user import User, identify_user
from service.store.sessions.families import UserEnding
from service.worker import Worker
from tests.support.clients_and_users import ALICE

CAROL = User(realm="main", username="Carol@example.com", password_hash="$argon2id$x", roles=("enduser",), name="Çarol")


@pytest.mark.clause("spec-2.3-user-record")
async def test_user_is_found_under_any_spelling_of_the_name(worker: Worker) -> None:
    await worker.registry.users.put(CAROL)
    found = await worker.registry.users.find(identify_user("main", "carol@EXAMPLE.com"))

    assert found is not None
    assert found.revision
    assert msgspec.structs.replace(found, revision="") == CAROL


@pytest.mark.clause("decided-same-name-in-two-realms")
async def test_users_of_one_name_in_two_realms_have_two_records(worker: Worker) -> None:
    await worker.registry.users.put(CAROL)
    await worker.registry.users.put(msgspec.structs.replace(CAROL, realm="cep", name="another"))
    found = await worker.registry.users.find_many([identify_user(realm, CAROL.username) for realm in ("main", "cep")])

    assert [CAROL.name, "another"] == [user.name for user in found if user]


async def test_an_owed_revocation_is_kept_until_it_is_settled(worker: Worker, store: redis.Redis) -> None:
    """It is kept after a change of the record, and also without a record."""
    alice = identify_user("main", ALICE.username)
    carols, alices = UserEnding.of(CAROL.identity, "user_deleted"), UserEnding.of(alice, "password_set")
    await worker.registry.add_pending_users([carols, alices])
    await worker.registry.add_pending_users([carols])
    await worker.registry.users.put(CAROL)

    assert set(await worker.registry.list_pending_users()) == {carols, alices}
    await worker.registry.clear_pending_users([carols])
    assert await worker.registry.list_pending_users() == [alices]
    await worker.registry.clear_pending_users([alices])
    assert not store.exists("pending_revocations:{registry}")
