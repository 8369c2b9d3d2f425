"""A stronger hash of the same password, written unless the user changed meanwhile."""

import msgspec
import pytest

from service.redis_client.deadline import UnreadableRecord
from service.store.keys import mark_key
from tests.store.sessions import Sessions


async def test_only_the_hash_of_the_record_is_replaced(sessions: Sessions) -> None:
    user = await sessions.find_user()
    await sessions.worker.registry.users.replace_password_hash(user, "$argon2id$new", "digest")
    after = await sessions.find_user()

    assert after == msgspec.structs.replace(user, password_hash="$argon2id$new", upgraded_from="digest")


async def test_a_login_under_way_survives_the_new_hash(sessions: Sessions) -> None:
    """The revision stays, since the password does."""
    user = await sessions.find_user()
    await sessions.worker.registry.users.replace_password_hash(user, "$argon2id$new", "digest")

    assert user.revision == (await sessions.find_user()).revision


async def test_hash_that_another_login_replaced_is_kept(sessions: Sessions) -> None:
    user = await sessions.find_user()
    for new_hash in ("$argon2id$new", "$argon2id$later"):
        await sessions.worker.registry.users.replace_password_hash(user, new_hash, "digest")

    assert (await sessions.find_user()).password_hash == "$argon2id$new"


async def test_changed_record_is_left_alone(sessions: Sessions) -> None:
    user = await sessions.find_user()
    await sessions.worker.registry.users.put(msgspec.structs.replace(user, password_hash="$argon2id$other"))
    await sessions.worker.registry.users.replace_password_hash(user, "$argon2id$new", "digest")

    assert (await sessions.find_user()).password_hash == "$argon2id$other"


async def test_a_deleted_user_does_not_come_back(sessions: Sessions) -> None:
    user = await sessions.find_user()
    key = f"user:{{{user.identity.shard}}}:{user.identity.digest}"
    sessions.store.delete(key)
    await sessions.worker.registry.users.replace_password_hash(user, "$argon2id$new", "digest")

    assert not sessions.store.exists(key)


@pytest.mark.clause("decided-newer-record")
async def test_mark_of_another_form_is_an_outage(sessions: Sessions) -> None:
    user = await sessions.find_user()
    sessions.store.set(mark_key(user.identity.shard, user.identity.digest), "3 1798479686226")
    with pytest.raises(UnreadableRecord):
        await sessions.worker.registry.users.put_password(user, sessions.now_ms())
    assert await sessions.find_user() == user
