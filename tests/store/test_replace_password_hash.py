"""A stronger hash of the same password, written unless the user changed meanwhile."""

import msgspec

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
    key = f"user:{{{user.identity.shard}}}:{user.identity.subject}"
    sessions.store.delete(key)
    await sessions.worker.registry.users.replace_password_hash(user, "$argon2id$new", "digest")

    assert not sessions.store.exists(key)
