"""The script register_secret_keys, by which an instance learns whether one of its secret keys is in use."""

from collections.abc import Callable

import pytest
import redis

from service.crypto.keyring import Keyring
from service.store.secret_keys import SecretKeys
from service.worker import Worker

pytestmark = pytest.mark.clause("decided-secret-key-foreign")

KEY = "secret_keys:{registry}"
ONE, TWO = b"1" * 32, b"2" * 32


def name_keys(*keys: bytes) -> set[str]:
    return set(Keyring(keys).key_ids)


@pytest.fixture
def start(worker: Worker, store: redis.Redis) -> Callable[..., SecretKeys]:
    """A function that returns the secret keys of an instance that has just started with these."""
    store.delete(KEY)

    def start(*keys: bytes) -> SecretKeys:
        keyring = Keyring(keys)
        keyring.is_in_use = False
        return SecretKeys(worker.redis, keyring)

    return start


async def test_a_rotation_needs_no_command(start: Callable[..., SecretKeys], store: redis.Redis) -> None:
    for keys in ([ONE], [ONE, TWO], [TWO, ONE], [TWO]):
        assert await start(*keys).register()

    assert store.smembers(KEY) == name_keys(ONE, TWO)


async def test_running_instance_does_not_restore_a_removed_key(
    start: Callable[..., SecretKeys], store: redis.Redis
) -> None:
    running = start(ONE, TWO)
    await running.register()
    store.srem(KEY, *name_keys(TWO))

    assert await running.register()
    assert store.smembers(KEY) == name_keys(ONE)
    store.delete(KEY)
    assert await running.register()
    assert store.smembers(KEY) == name_keys(ONE, TWO)


async def test_a_foreign_key_is_not_added(start: Callable[..., SecretKeys], store: redis.Redis) -> None:
    await start(ONE).register()

    assert not await start(TWO).register()
    assert store.smembers(KEY) == name_keys(ONE)


async def test_a_foreign_instance_takes_no_emptied_store(start: Callable[..., SecretKeys], store: redis.Redis) -> None:
    right, foreign = start(ONE), start(TWO)
    assert (await right.register(), await foreign.register()) == (True, False)
    store.delete(KEY)

    assert (await foreign.register(), await right.register()) == (False, True)
    await start(TWO).adopt()
    assert await foreign.register()
