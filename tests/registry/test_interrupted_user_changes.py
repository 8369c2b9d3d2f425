"""A change of a user that a client makes again after it was interrupted: the second answer is true of all sessions."""

from contextlib import suppress

import msgspec
import pytest

from service.protocol.user import User
from service.registry.editor import ChangeRefused, RegistryEditor
from service.store.client import StoreClient
from service.store.keys import user_key
from tests.conftest import MakeSettings
from tests.registry.seeds import make_seeding
from tests.store.interruptions import is_broken_off
from tests.store.sessions import Sessions
from tests.support.clients_and_users import BOB

pytestmark = [pytest.mark.usefixtures("registry"), pytest.mark.clause("decided-managed-users-changes")]


def disable(user: User | None) -> User:
    assert user is not None
    return msgspec.structs.replace(user, disabled=True)


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_repeated_change_ends_what_the_first_left(
    sessions: Sessions, make_settings: MakeSettings, is_deleted: bool
) -> None:
    """It is broken off at every call. The second run finds the record changed, and answers after the sessions ended."""
    worker, bob = sessions.worker, await sessions.find_user(BOB)

    async def change(connection: StoreClient) -> None:
        seeding = make_seeding(connection)
        editor = RegistryEditor(seeding._registry, seeding._pending_revocations, {"actor": "back-office"})
        with suppress(ChangeRefused):
            await (editor.delete_user(bob.identity) if is_deleted else editor.put_user(bob.identity, disable))

    calls, is_broken = 0, True
    while is_broken:
        await worker.registry.users.put(bob)
        family = await sessions.start(BOB)
        is_broken = await is_broken_off(make_settings(), calls, change)
        await change(worker.redis)
        assert sessions.live(family) == [False], calls
        assert not sessions.record(family), calls
        assert not await worker.registry.has_pending(), calls
        calls += 1

    assert calls > 4


async def test_change_of_nothing_keeps_a_renewed_hash(sessions: Sessions) -> None:
    """A login replaces the hash while the request compares the record. The weaker hash does not come back."""
    worker, bob = sessions.worker, await sessions.find_user(BOB)
    editor = RegistryEditor(worker.registry, worker.pending_revocations, {"actor": "back-office"})
    renewed = msgspec.json.encode(msgspec.structs.replace(bob, password_hash="$argon2id$new", revision=""))

    def compare(old: User | None) -> User:
        sessions.store.hset(user_key(bob.identity), "record", renewed)
        assert old is not None
        return old

    await editor.put_user(bob.identity, compare)
    assert (await sessions.find_user(BOB)).password_hash == "$argon2id$new"
