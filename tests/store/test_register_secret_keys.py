"""The script register_secret_keys, by which an instance learns whether one of its secret keys is in use."""

import pytest
import redis

from service.store.secret_keys import SecretKeys
from service.worker import Worker

pytestmark = pytest.mark.clause("decided-secret-key-foreign")

KEY = "secret_keys:{registry}"


@pytest.fixture
def secret_keys(worker: Worker, store: redis.Redis) -> SecretKeys:
    store.delete(KEY)
    return worker.secret_keys


async def test_the_first_instance_puts_its_keys_into_use(secret_keys: SecretKeys, store: redis.Redis) -> None:
    assert await secret_keys.register(["one", "two"], is_start=False)
    assert store.smembers(KEY) == {"one", "two"}


async def test_a_rotation_needs_no_command(secret_keys: SecretKeys) -> None:
    for key_ids in (["one"], ["one", "two"], ["two", "one"], ["two"]):
        assert await secret_keys.register(key_ids, is_start=True)


async def test_a_running_instance_adds_no_key(secret_keys: SecretKeys, store: redis.Redis) -> None:
    """Otherwise it would bring back a key that the console removed."""
    await secret_keys.adopt(["one"])

    assert await secret_keys.register(["one", "stolen"], is_start=False)
    assert store.smembers(KEY) == {"one"}


async def test_a_foreign_key_is_not_added(secret_keys: SecretKeys, store: redis.Redis) -> None:
    await secret_keys.adopt(["one"])

    assert not await secret_keys.register(["two"], is_start=True)
    assert store.smembers(KEY) == {"one"}
