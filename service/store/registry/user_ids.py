"""The ids of users of realm main: a key for each leads to its user. While a user is renamed, it leads to both names.

An id is claimed before its record is written, and released after the record and its sessions are gone. A claim whose
record does not have the id belongs to nobody. So an interruption leaves a user who cannot be found by id at no time,
and an id that the next creator can take.

Clauses: SPEC §2.2
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from service.protocol.user import User, UserIdentity, identify_digest
from service.redis_client.deadline import UnreadableRecord
from service.store.client import StoreClient
from service.store.keys import id_key, id_shard
from service.store.registry.record_kind import COMMANDS_AT_ONCE, split_parts
from service.store.registry.users import Users

Claim = tuple[str, UserIdentity]
"""An id, and the user who is to have it."""


def make_user_id() -> str:
    """Return a random id for a new user: 128 bits, 22 characters of base64url."""
    return secrets.token_urlsafe(16)


class UserIds:
    def __init__(self, redis: StoreClient, users: Users) -> None:
        self._redis = redis
        self._users = users

    async def find(self, user_id: str) -> list[UserIdentity]:
        """Return the users that the id leads to, without their names: one, two during a rename, or none.

        The users' records may be gone or unreadable. A user who has another id by now is left out.
        """
        holders = _parse(await self._redis.read("GET", id_key(user_id)))
        try:
            users = await self._users.find_many(holders)
        except UnreadableRecord:
            return holders
        return [each for each, user in zip(holders, users, strict=True) if user is None or user.id == user_id]

    async def map_taken(self, claims: Sequence[Claim]) -> dict[str, str]:
        """Return those of the ids that another user has, each with the name of that user."""
        answers = [
            answer
            for part in split_parts(claims, COMMANDS_AT_ONCE)
            for answer in await self._redis.read_many([("GET", id_key(user_id)) for user_id, _ in part])
        ]
        held = [
            (user_id, holder)
            for (user_id, identity), answer in zip(claims, answers, strict=True)
            for holder in _parse(answer)
            if holder.digest != identity.digest
        ]
        users = await self._users.find_many([holder for _, holder in held])
        return {
            user_id: user.username
            for (user_id, _), user in zip(held, users, strict=True)
            if user is not None and user.id == user_id
        }

    async def claim(self, claims: Sequence[Claim]) -> dict[str, str]:
        """Claim the ids for these users. The caller holds the lock. Returns what `map_taken` does."""
        for part in split_parts(claims, COMMANDS_AT_ONCE):
            answers = await self._redis.write_many(
                [("SET", id_key(user_id), identity.digest, "NX") for user_id, identity in part]
            )
            lost = [claim for claim, answer in zip(part, answers, strict=True) if answer is None]
            taken = await self.map_taken(lost)
            await self._redis.write_many([("SET", id_key(uid), user.digest) for uid, user in lost if uid not in taken])
            if taken:
                return taken
        return {}

    async def claim_one(self, user: User) -> str:
        """Claim the user's id. Durable on return. Returns the name of another user who has it, or an empty text."""
        async with self._redis.durable(id_shard(user.id)) as scripts:
            taken = await self.claim([(user.id, user.identity)])
            await scripts.leave_fence()
        return taken.get(user.id, "")

    async def put(self, user_id: str, *users: UserIdentity) -> None:
        """Let the id lead to these users. Durable on return. The caller holds the lock."""
        async with self._redis.durable(id_shard(user_id)) as scripts:
            await self._redis.write("SET", id_key(user_id), " ".join(user.digest for user in users))
            await scripts.leave_fence()

    async def release(self, ids: Sequence[str]) -> None:
        """Delete the keys of ids whose users are gone. The caller holds the lock."""
        await self._redis.write_many([("DEL", id_key(user_id)) for user_id in ids])

    async def list_strays(self, keys: Sequence[str]) -> list[str]:
        """Return those of the keys that lead to no user with the id."""
        answers = await self._redis.read_many([("GET", key) for key in keys])
        users = await self._users.find_many([holder for answer in answers for holder in _parse(answer)])
        owned = {id_key(user.id) for user in users if user is not None}
        return [key for key, answer in zip(keys, answers, strict=True) if answer and key not in owned]

    async def list_missing(self, keys: Sequence[str]) -> list[Claim]:
        """Return the users under these keys whom their ids do not lead to. Those who are being renamed are left out."""
        found = await self._users.find_many([identify_digest(key.rpartition(":")[2]) for key in keys])
        users = [user for user in found if user is not None and user.id and not user.renamed_to]
        pairs = zip(users, await self._redis.read_many([("GET", id_key(user.id)) for user in users]), strict=True)
        return [
            (user.id, user.identity) for user, answer in pairs if user.identity.digest.encode() not in (answer or b"")
        ]


def _parse(digests: bytes | None) -> list[UserIdentity]:
    return [identify_digest(digest) for digest in (digests or b"").decode().split()]
