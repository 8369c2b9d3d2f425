"""Records of users and realms as they are written and read."""

import redis

from service.protocol.user import User, identify_user
from service.store.sessions.families import UserEnding
from service.worker import Worker
from tests.support.clients_and_users import ALICE

CAROL = User(realm="main", username="Carol@example.com", password_hash="$argon2id$x", roles=("enduser",), name="Çarol")


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
