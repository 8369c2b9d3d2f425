"""The service's key changes in steps. The registry keeps its contents and is sealed by the new key."""

import msgspec
import pytest
import redis

from service.crypto.keyring import Keyring
from service.protocol.provider import IdentityProvider
from service.registry.seed_file.read import parse_seed
from service.worker import Worker
from tests.registry.seeds import KEY_ONE, KEY_TWO, OTHER_HASH, SeedText, make_seeding
from tests.store.sessions import Sessions

SECRETS = ("client_secret", "password")
STEPS = [(KEY_ONE,), (KEY_ONE, KEY_TWO), (KEY_TWO, KEY_ONE), (KEY_TWO,)]


def read_realm_secret(store: redis.Redis, *secret_keys: bytes) -> str | None:
    sealed = msgspec.json.decode(str(store.get("realm:{registry}:cep")), type=IdentityProvider).sealed_secret
    return Keyring(secret_keys).open_sealed_text("realm:cep", sealed)


@pytest.mark.clause("decided-secret-key-rotation", "decided-seed-digest-keyed")
async def test_key_rotation_changes_no_entry_or_session(sessions: Sessions) -> None:
    worker = sessions.worker
    await make_seeding(worker.redis, KEY_ONE).apply(SeedText().seed)
    user, client = await sessions.find_user(), await worker.registry.clients.find("web-shop")
    session = await sessions.start()
    for keys in STEPS:
        await make_seeding(worker.redis, *keys).apply(SeedText().seed)
        await make_seeding(worker.redis, *keys).apply(SeedText().seed)

        assert user == await sessions.find_user()
        assert client == await worker.registry.clients.find("web-shop")
    assert (await sessions.spend(session, 1)).verdict == "rotated"


async def test_the_secret_of_a_realm_comes_under_the_new_key(worker: Worker, store: redis.Redis) -> None:
    for keys in STEPS[:3]:
        await make_seeding(worker.redis, *keys).apply(SeedText().seed)
        assert read_realm_secret(store, *keys) == "secret-at-the-organisation"

    assert read_realm_secret(store, KEY_TWO) == "secret-at-the-organisation"
    assert read_realm_secret(store, KEY_ONE) is None


@pytest.mark.clause("decided-export")
async def test_a_seed_without_the_secret_of_a_realm_keeps_it(worker: Worker, store: redis.Redis) -> None:
    without = SeedText().text.replace("client_secret: secret-at-the-organisation, ", "").encode()
    await make_seeding(worker.redis, KEY_ONE).apply(SeedText().seed)
    second = make_seeding(worker.redis, KEY_TWO, KEY_ONE)

    assert (await second.compare(parse_seed(without))).changes == 0
    await second.apply(parse_seed(without), force=True)

    assert read_realm_secret(store, KEY_TWO) == "secret-at-the-organisation"
    await second.apply(parse_seed(without.replace(b"client_id: us", b"client_id: us, client_secret: ''")))
    assert read_realm_secret(store, KEY_TWO) is None


@pytest.mark.clause("decided-seed-digest-keyed")
async def test_last_applied_entry_reveals_no_secret(worker: Worker, store: redis.Redis) -> None:
    """The same file under two keys leaves no digest of a secret in common."""
    found = []
    for key in (KEY_ONE, KEY_TWO):
        store.flushall()
        await make_seeding(worker.redis, key).apply(SeedText().seed)
        fields = [value for name in store.scan_iter("seed:*") for value in store.hvals(name) if value[0] == "{"]
        found.append({value for text in fields for name, value in msgspec.json.decode(text).items() if name in SECRETS})

    assert len(found[0]) == 4
    assert not found[0] & found[1]


@pytest.mark.clause("decided-seed-strange-key")
async def test_a_dropped_key_leaves_secrets_of_the_console_alone(sessions: Sessions) -> None:
    """This happens after a theft. The realm's secret is sealed by the new key."""
    worker = sessions.worker
    await make_seeding(worker.redis, KEY_ONE).apply(SeedText().seed)
    changed = msgspec.structs.replace(await sessions.find_user(), disabled=True, password_hash=OTHER_HASH)
    await worker.registry.users.put(changed)
    second = make_seeding(worker.redis, KEY_TWO)

    outcome = await second.apply(SeedText().but(name="Alicia").seed)

    found = await sessions.find_user()
    assert (found.disabled, found.password_hash, found.name) == (True, OTHER_HASH, "Alicia")
    assert (outcome.counts["users"]["updated"], outcome.changes) == (1, 1)
    assert read_realm_secret(sessions.store, KEY_TWO) == "secret-at-the-organisation"
