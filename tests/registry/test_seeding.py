"""An applied seed adds new entries, applies changes of the file, and leaves everything else alone."""

import asyncio

import pytest
import redis

from service.crypto.hash_kinds import digest_hash
from service.crypto.password_hashing import verify_password
from service.realms.main import MainRealm
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.lock import LOCK_PAUSE_SECONDS
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.read import parse_seed
from service.store.keys import registry_key
from service.store.registry.seeds import BEING_APPLIED
from service.worker import Worker
from tests.conftest import MakeSettings
from tests.registry.contents import everything, find_alice, find_client
from tests.registry.seeds import OTHER_HASH, PASSWORD_HASH, SECRET_HASH, SeedText, make_seeding
from tests.store.sessions import Sessions
from tests.support.clients_and_users import ALICE
from tests.support.loop_time import LoopTime
from tests.support.waiting import until
from tests.support.weak_hashes import BCRYPT_HASH, WEAKER_HASH


@pytest.mark.clause("decided-seed-adds-and-updates", "spec-2.3-client-record", "spec-2.3-user-record")
async def test_an_empty_registry_gets_everything(worker: Worker, seeding: Seeding) -> None:
    applied = await seeding.apply(SeedText().seed)
    client, alice = await find_client(worker), await find_alice(worker)

    assert applied.changes == 5
    assert client.grant_types == ("password", "authorization_code", "refresh_token")
    assert (client.scope, client.is_public) == ("realm:main role:enduser role:organisation", True)
    assert (await find_client(worker, "web-shop")).client_secret_hash == SECRET_HASH
    assert (alice.password_hash, alice.roles, alice.name) == (PASSWORD_HASH, ("enduser", "organisation"), "Alice")
    assert await worker.registry.realms.find("cep")


@pytest.mark.clause("decided-seed-adds-and-updates")
async def test_the_same_file_again_touches_nothing(seeding: Seeding, store: redis.Redis) -> None:
    await seeding.apply(SeedText().seed)
    before = everything(store)

    assert (await seeding.apply(SeedText().seed)).changes == 0
    assert before == everything(store)


@pytest.mark.clause("decided-seed-interrupted", "decided-seed-not-in-force")
async def test_store_emptied_during_a_load_has_no_seed(seeding: Seeding, store: redis.Redis) -> None:
    def empty(done: int, _: int) -> None:
        if done:
            store.flushall()

    with pytest.raises(StoreUnavailable):
        await seeding.apply(SeedText().seed, on_progress=empty)

    assert store.hget(registry_key("seed"), "file") is None
    assert (await seeding.apply(SeedText().seed)).changes > 0


@pytest.mark.clause("decided-seed-interrupted", "decided-seed-not-in-force")
async def test_former_seed_is_in_force_until_the_next(seeding: Seeding, store: redis.Redis) -> None:
    """The next one is interrupted twice. Then the former one is applied again. The mark of the store stays the same."""

    def interrupt(_done: int, _of: int) -> None:
        raise InterruptedError(store.hget(registry_key("seed"), "file"))

    await seeding.apply(SeedText().seed)
    mark = str(store.hget(registry_key("seed"), "file"))
    for _ in range(2):
        with pytest.raises(InterruptedError, match=f"^{BEING_APPLIED} {mark.split()[1]}$"):
            await seeding.apply(SeedText(name="Al").seed, on_progress=interrupt)
    await seeding.apply(SeedText().seed)

    assert store.hget(registry_key("seed"), "file") == mark


@pytest.mark.clause("decided-seed-secrets-hashed", "6749-10.10-user-credentials-protected")
async def test_secrets_and_passwords_rest_as_slow_hashes(worker: Worker, seeding: Seeding, store: redis.Redis) -> None:
    text = b"""
clients: [{client_id: reader, client_secret: a chosen secret}]
users: [{username: alice@example.com, password: a chosen password}]
"""
    await seeding.apply(parse_seed(text))
    alice, client = await find_alice(worker), await find_client(worker, "reader")

    assert verify_password("a chosen password", alice.password_hash or "")[0]
    assert verify_password("a chosen secret", client.client_secret_hash or "")[0]
    assert (alice.password_hash or "").startswith("$argon2id$")
    assert not [key for key, value in everything(store).items() if b"a chosen" in (value or b"")]


async def log_in(worker: Worker) -> None:
    await MainRealm(worker.registry, worker.users, worker.passwords).log_in(ALICE.username, "a password", "", 0)


@pytest.mark.usefixtures("real_hashes")
@pytest.mark.clause("decided-seed-ends-sessions", "6819-5.1.4.1.3-no-clear-text")
@pytest.mark.parametrize("old_hash", [WEAKER_HASH, BCRYPT_HASH], ids=["argon2id", "bcrypt"])
async def test_strengthened_hash_survives_other_edits(sessions: Sessions, seeding: Seeding, old_hash: str) -> None:
    worker, imported = sessions.worker, SeedText(password_hash=old_hash)
    await seeding.apply(imported.seed)
    await log_in(worker)
    session, stronger = await sessions.start(), (await find_alice(worker)).password_hash
    assert stronger is not None
    assert stronger.startswith("$argon2id$v=19$m=19456")
    for name in ("Another", "Yet another"):
        await seeding.apply(imported.but(name=name).seed)
        alice = await find_alice(worker)

        assert (alice.name, alice.password_hash, alice.upgraded_from) == (name, stronger, digest_hash(old_hash))
        assert sessions.live(session) == [True]
    await log_in(worker)

    await seeding.apply(imported.but(password_hash=OTHER_HASH).seed)
    assert (await find_alice(worker)).password_hash == OTHER_HASH
    assert sessions.live(session) == [False]


@pytest.mark.clause("decided-seed-one-worker-applies")
async def test_concurrent_starts_apply_the_seed_once(
    worker: Worker, make_settings: MakeSettings, held_time: LoopTime
) -> None:
    others = [Worker(make_settings(), lambda: 0) for _ in range(3)]
    seedings = [make_seeding(each.redis) for each in [worker, *others]]
    applying = asyncio.gather(*(each.apply(SeedText().seed) for each in seedings))

    def are_applied() -> bool:
        """End the pause of seedings that wait for the lock, and return True if all are applied."""
        if held_time.is_due_in(LOCK_PAUSE_SECONDS):
            held_time.advance(LOCK_PAUSE_SECONDS)
        return applying.done()

    await until(are_applied, "four seeds")
    for other in others:
        await other.close()

    assert sorted(outcome.changes for outcome in applying.result()) == [0, 0, 0, 5]
