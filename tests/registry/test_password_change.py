"""A user's own change of the password, below HTTP: who wins a race, and what an interruption leaves."""

from collections.abc import AsyncIterator

import pytest

from service.crypto.hash_kinds import digest_hash
from service.crypto.password_hashing import hash_password, verify_password
from service.protocol.user import User
from service.registry.password_change import PasswordChange
from service.registry.pending_revocations import PendingRevocations
from service.registry.seed_file.read import parse_seed
from service.store.client import StoreClient
from service.store.registry.store import RegistryStore
from service.store.sessions.revocations import Revocations
from service.worker import Worker
from tests.conftest import Clock, MakeSettings
from tests.store.interruptions import is_broken_off
from tests.store.sessions import Sessions
from tests.support.clients_and_users import ALICE
from tests.support.logins import login_of
from tests.support.weak_hashes import BCRYPT_HASH

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
    user = await worker.registry.users.find(User(realm=ALICE.realm, username=ALICE.username).identity)
    assert user is not None
    return user


async def has_password(worker: Worker, password: str) -> bool:
    alice = await get_alice(worker)
    assert alice.password_hash is not None
    return verify_password(password, alice.password_hash)[0]


@pytest.mark.clause("decided-password-change-one-wins")
async def test_a_change_that_comes_too_late_ends_no_sessions(sessions: Sessions) -> None:
    worker = sessions.worker
    checked = await get_alice(worker)
    await worker.password_change.make(login_of(checked), hash_password(NEW), address=ADDRESS)
    family = await sessions.start(ALICE)

    assert await worker.password_change.make(login_of(checked), hash_password("another one"), address=ADDRESS) is None
    assert sessions.live(family) == [True]
    assert not await worker.registry.has_pending()
    assert await has_password(worker, NEW)


async def test_a_change_that_a_revocation_overtakes_is_not_made(sessions: Sessions) -> None:
    worker, alice = sessions.worker, await get_alice(sessions.worker)
    marked_ms, _ = await worker.revocations.revoke_all(alice.identity.shard, alice.identity.digest)
    under_way, later = login_of(alice, begun_ms=marked_ms), login_of(alice, begun_ms=marked_ms + 1)

    assert await worker.password_change.make(under_way, hash_password(NEW), address=ADDRESS) is None
    assert await has_password(worker, ALICE.password)
    assert await worker.password_change.make(later, hash_password(NEW), address=ADDRESS) is not None


@pytest.mark.clause("decided-seed-force")
async def test_a_forced_seed_restores_the_password_of_the_file(worker: Worker) -> None:
    """A login had replaced the hash of the file by a stronger one before the user chose another password."""
    seed = parse_seed(f"users: [{{username: {ALICE.username}, password_hash: {BCRYPT_HASH}}}]".encode())
    await worker.seeding.apply(seed)
    stronger, replaced = hash_password("a password"), digest_hash(BCRYPT_HASH)
    await worker.registry.users.replace_password_hash(await get_alice(worker), stronger, replaced)
    assert await worker.password_change.make(login_of(await get_alice(worker)), hash_password(NEW), address=ADDRESS)
    assert await has_password(worker, NEW)

    await worker.seeding.apply(seed, force=True)

    assert await has_password(worker, "a password")


@pytest.mark.clause("decided-password-change-pending")
async def test_interrupted_change_is_absent_or_completed(sessions: Sessions, make_settings: MakeSettings) -> None:
    """It is broken off at every call. Each worker runs the pending revocations every 15 s."""
    worker = sessions.worker
    original, calls, is_broken = await get_alice(worker), 0, True

    async def change(redis_client: StoreClient) -> None:
        login = login_of(await get_alice(worker))
        await make_change(redis_client, worker).make(login, hash_password(NEW), address=ADDRESS)

    while is_broken:
        await worker.registry.users.put(original)
        before, family = await get_alice(worker), await sessions.start(ALICE)
        is_broken = await is_broken_off(make_settings(), calls, change)
        is_changed = await get_alice(worker) != before
        await worker.pending_revocations.run_all()

        assert await has_password(worker, NEW if is_changed else ALICE.password), calls
        assert not (is_changed and any(sessions.live(family))), calls
        assert not (is_changed and sessions.record(family)), calls
        assert not await worker.registry.has_pending(), calls
        calls += 1

    assert calls > 5
