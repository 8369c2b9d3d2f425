"""The ids of the secret keys in use, by which an instance with another installation's key is recognised.

An id is derived from its key and does not reveal it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from service.crypto.keyring import Keyring
from service.redis_client.deadline import StoreUnavailable
from service.store.client import StoreClient, load_script
from service.store.keys import registry_key

_KEY: Final = registry_key("secret_keys")
_REGISTER: Final = load_script("register_secret_keys")


class SecretKeys:
    def __init__(self, redis: StoreClient, keyring: Keyring) -> None:
        self._redis = redis
        self._keyring = keyring
        self._state = "start"

    async def register(self) -> bool:
        """Return True if a key of this instance is in use, and note it in the keyring.

        The first instance of a store puts its keys into use. An instance also adds its other keys when it finds one of
        its keys in use, so that keys can be rotated without a command. Later it does not, or it would bring back a key
        that the console removed. An instance that was foreign does not take an emptied store for its own.
        """
        key_ids = msgspec.json.encode(self._keyring.key_ids).decode()
        verdict = await self._redis.run(_REGISTER, secret_keys_key=_KEY, key_ids=key_ids, state=self._state)
        self._state = str(verdict[0])
        self._keyring.is_in_use = self._state == "in_use"
        return self._keyring.is_in_use

    async def are_in_use(self) -> bool:
        """Return True if a key of this instance is in use. During an outage this is the last result.

        The worker asks once a second, so it notices an id that the console adopted or removed.
        """
        with suppress(StoreUnavailable):
            await self.register()
        return self._keyring.is_in_use

    async def list_ids(self) -> list[str]:
        return sorted(key_id.decode() for key_id in await self._redis.read("SMEMBERS", _KEY))

    async def are_foreign(self) -> bool:
        """Return True if keys are in use, and none of the keyring is."""
        in_use = await self.list_ids()
        return bool(in_use) and set(in_use).isdisjoint(self._keyring.key_ids)

    async def adopt(self, removed: Sequence[str] = ()) -> None:
        """Put the keys of the keyring into use, and remove others."""
        await self._redis.write("SADD", _KEY, *self._keyring.key_ids)
        if removed:
            await self._redis.write("SREM", _KEY, *removed)
