"""The entries of a seed file as they were last applied.

Clauses: SPEC §2.3
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from service.protocol.user import UserIdentity
from service.store.client import StoreClient
from service.store.keys import registry_key, user_seed_key

SeedName = str | UserIdentity
"""The name of a seed entry as last applied: `client:<id>`, `realm:<name>` or a user.

`file` has the digest of the file in force, or BEING_APPLIED, and a random mark. The store got the mark with its first
seed, so another mark means that it was emptied in between.
"""

BEING_APPLIED: Final = "being_applied"


def _get_field(name: SeedName) -> tuple[str, str]:
    """Return the key and the field of a seed entry as last applied. A user's lies in the slot of the user's record."""
    if isinstance(name, UserIdentity):
        return user_seed_key(name.shard), name.digest
    return registry_key("seed"), name


class Seeds:
    def __init__(self, redis: StoreClient) -> None:
        self._redis = redis

    async def find(self, name: SeedName) -> str | None:
        text = await self._redis.read("HGET", *_get_field(name))
        return None if text is None else text.decode(errors="replace")

    async def read_mark(self) -> str:
        """Return the mark of the store, or "" until a seed has been applied to it."""
        return (await self.find("file") or "").partition(" ")[2]

    async def find_many(self, names: Sequence[SeedName]) -> list[str | None]:
        """Return the seed entries under these names as last applied, or None for each that was not applied."""
        answers = await self._redis.read_many([("HGET", *_get_field(name)) for name in names])
        return [None if text is None else text.decode(errors="replace") for text in answers]

    async def list_all(self) -> dict[str, str]:
        """Return all texts that `find` can find, but for those of users, by their names."""
        fields = await self._redis.read("HGETALL", registry_key("seed"))
        return {name.decode(errors="replace"): applied.decode(errors="replace") for name, applied in fields.items()}

    async def list_users(self, shards: Sequence[str]) -> list[UserIdentity]:
        """Return the users of these shards whose entries a seed applied.

        Only shard and user_digest are set, because the store keeps no user name for a seed entry.
        """
        answers = await self._redis.read_many([("HGETALL", user_seed_key(shard)) for shard in shards])
        return [
            UserIdentity("", "", user_digest.decode(), shard)
            for shard, fields in zip(shards, answers, strict=True)
            for user_digest in fields
        ]

    async def put(self, name: SeedName, applied: str) -> None:
        """Store an entry as last applied, or delete it if the text is empty."""
        await self._redis.write(*(("HSET", *_get_field(name), applied) if applied else ("HDEL", *_get_field(name))))
