"""The ids of the secret keys in use, by which an instance with another installation's key is recognised.

An id is derived from its key and does not reveal it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from service.store.client import StoreClient
from service.store.keys import registry_key
from service.store.scripts import load_script

_KEY: Final = registry_key("secret_keys")
_REGISTER: Final = load_script("register_secret_keys")


class SecretKeys:
    def __init__(self, redis: StoreClient) -> None:
        self._redis = redis

    async def register(self, key_ids: Sequence[str], *, is_start: bool) -> bool:
        """Return True if a key of this instance is in use. The first instance of a store makes its keys so.

        At its start an instance also adds its other keys, so that they can be rotated without a command. Later it does
        not, or it would bring back a key that the console removed.
        """
        arguments: list[str | int] = [msgspec.json.encode(key_ids).decode(), int(is_start)]
        return await self._redis.run(_REGISTER, [_KEY], arguments) == ["in_use"]

    async def list_ids(self) -> list[str]:
        return sorted(key_id.decode() for key_id in await self._redis.read("SMEMBERS", _KEY))

    async def has_only_others(self, key_ids: Sequence[str]) -> bool:
        """Return True if keys are in use, and none of these is."""
        in_use = await self.list_ids()
        return bool(in_use) and set(in_use).isdisjoint(key_ids)

    async def adopt(self, key_ids: Sequence[str], removed: Sequence[str] = ()) -> None:
        """Add ids to those in use, and remove others."""
        await self._redis.write("SADD", _KEY, *key_ids)
        if removed:
            await self._redis.write("SREM", _KEY, *removed)
