"""A user's own change of the password, below HTTP: who wins a race, and what an interruption leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
import redis

from service.crypto.password_hashing import hash_password, verify_password
from service.protocol.user import User
from service.redis_client.deadline import StoreUnavailable
from service.registry.password_change import PasswordChange
from service.registry.pending_revocations import PendingRevocations
from service.registry.seed_file.apply import Seeding
from service.store.client import StoreClient
from service.store.registry import RegistryStore
from service.store.revocations import Revocations
from service.worker import Worker
from tests.conftest import Clock, MakeSettings
from tests.registry.seeds import SeedText
from tests.store.interruptions import BreakingConnection
from tests.store.sessions import Sessions
from tests.support.clients_and_users import ALICE

CALLS = range(7)
ADDRESS = "203.0.113.7"
NEW = "a new password of Alice's"

pytestmark = pytest.mark.clause("decided-password-change")


@pytest.fixture
async def worker(make_settings: MakeSettings, clock: Clock, registry: None) -> AsyncIterator[Worker]:
    """A worker with the clients and users of the seed."""
    worker = Worker(make_settings(), lambda: clock.offset_ms)
    yield worker
    await worker.close()


def make_change(redis_client: StoreClient, worker: Worker) -> PasswordChange:
    registry = RegistryStore(redis_client)
    return PasswordChange(registry, PendingRevocations(registry, Revocations(redis_client), worker.session_scan))


async def get_alice(worker: Worker) -> User:
    user = await worker.registry.find_user(User(realm=ALICE.realm, username=ALICE.username).identity)
    assert user is not None
    return user


async def has_password(worker: Worker, password: str) -> bool:
    alice = await get_alice(worker)
    assert alice.password_hash is not None
    return verify_password(password, alice.password_hash)[0]


async def run_pending(worker: Worker) -> None:
    """Run the pending revocations as each worker does every 15 s."""
    await worker.pending_revocations.run_all()


@pytest.mark.clause("decided-password-change-one-wins")
async def test_a_change_that_comes_too_late_ends_no_sessions(sessions: Sessions) -> None:
    worker = sessions.worker
    checked = await get_alice(worker)
    await worker.password_change.make(checked, hash_password(NEW), address=ADDRESS)
    family = await sessions.start(ALICE)

    assert await worker.password_change.make(checked, hash_password("another one"), address=ADDRESS) is None
    assert sessions.live(family) == [True]
    assert not await worker.registry.has_pending()
    assert await has_password(worker, NEW)


@pytest.mark.parametrize("changes", [{"disabled": True}, {"roles": ("enduser",)}, {"password_hash": "$argon2id$other"}])
async def test_a_record_that_changed_since_the_check_is_left_alone(
    sessions: Sessions, changes: dict[str, object]
) -> None:
    worker = sessions.worker
    checked = await get_alice(worker)
    await worker.registry.put_users([msgspec.structs.replace(checked, **changes)])
    present = await get_alice(worker)

    assert await worker.password_change.make(checked, hash_password(NEW), address=ADDRESS) is None
    assert await get_alice(worker) == present


async def test_a_deleted_user_does_not_come_back(sessions: Sessions) -> None:
    worker = sessions.worker
    checked = await get_alice(worker)
    await worker.registry.delete_users([checked.identity])

    assert await worker.password_change.make(checked, hash_password(NEW), address=ADDRESS) is None
    assert await worker.registry.find_user(checked.identity) is None


async def test_a_stronger_hash_of_the_old_password_does_not_undo_a_change(sessions: Sessions) -> None:
    """A login that checked the old password may store a stronger hash of it later."""
    worker = sessions.worker
    checked = await get_alice(worker)
    await worker.password_change.make(checked, hash_password(NEW), address=ADDRESS)
    await worker.registry.replace_password_hash(msgspec.structs.replace(checked, password_hash="$argon2id$stronger"))

    assert await has_password(worker, NEW)


async def break_off(worker: Worker, make_settings: MakeSettings, calls: int) -> bool:
    """Change the password over a connection that fails after so many calls. Returns True if it failed."""
    connection = BreakingConnection(make_settings(), calls=calls)
    try:
        await make_change(connection, worker).make(await get_alice(worker), hash_password(NEW), address=ADDRESS)
    except StoreUnavailable:
        return True
    finally:
        await connection.close()
    return False


async def test_breaking_off_is_tried_at_every_call(sessions: Sessions, make_settings: MakeSettings) -> None:
    assert await break_off(sessions.worker, make_settings, CALLS[-2])
    assert not await break_off(sessions.worker, make_settings, CALLS[-1])


@pytest.mark.clause("decided-password-change-pending")
@pytest.mark.parametrize("calls", CALLS)
async def test_a_change_that_breaks_off_is_not_made_or_is_finished_by_a_worker(
    sessions: Sessions, make_settings: MakeSettings, store: redis.Redis, calls: int
) -> None:
    worker = sessions.worker
    before, family = await get_alice(worker), await sessions.start(ALICE)
    await break_off(worker, make_settings, calls)
    is_changed = await get_alice(worker) != before
    await run_pending(worker)

    assert await has_password(worker, NEW if is_changed else ALICE.password)
    if is_changed:
        assert sessions.live(family) == [False]
        assert not list(store.scan_iter("family:*"))
    assert not await worker.registry.has_pending()


@pytest.mark.clause("decided-seed-keeps-console-changes")
async def test_a_seed_whose_password_stayed_the_same_leaves_the_users_own(sessions: Sessions, seeding: Seeding) -> None:
    worker = sessions.worker
    await seeding.apply(SeedText().seed)
    await worker.password_change.make(await get_alice(worker), hash_password(NEW), address=ADDRESS)
    for seed in (SeedText(), SeedText().but(name="Another")):
        await seeding.apply(seed.seed)

        assert await has_password(worker, NEW)
