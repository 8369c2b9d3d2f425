"""The records of users.

Clauses: SPEC §2.3
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import msgspec

from service.protocol.user import User, UserIdentity
from service.redis_client.connection import Command
from service.redis_client.script import Run
from service.store.client import load_script
from service.store.keys import mark_key, user_key, user_seed_key
from service.store.records import read_json, reading, write_json
from service.store.registry.record_kind import COMMANDS_AT_ONCE, RecordKind, Records, make_revision, split_parts

_PUT: Final = load_script("registry/put_user")
_REMOVE: Final = load_script("registry/remove_user")
_REPLACE_PASSWORD_HASH: Final = load_script("registry/replace_password_hash")

_decode: Final = msgspec.json.Decoder(User).decode


@reading("a user")
def _parse(fields: Sequence[Any]) -> User | None:
    record, revision = fields
    if record is None and revision is None:
        return None
    return msgspec.structs.replace(read_json(_decode, record, "a user"), revision=revision.decode())


USERS: Final = RecordKind[UserIdentity, User | None](
    "user", lambda identity: ("HMGET", user_key(identity), "record", "revision"), _parse
)


class Users(Records[UserIdentity, User | None]):
    async def find_many(self, identities: Sequence[UserIdentity]) -> list[User | None]:
        commands = [USERS.command(identity) for identity in identities]
        parts = split_parts(commands, COMMANDS_AT_ONCE)
        return [USERS.parse(fields) for part in parts for fields in await self._redis.read_many(part)]

    async def list_of(self, *realms: str) -> list[User]:
        """Return the users of these realms, sorted by realm and user name."""
        found = {(user.realm, user.identity.username): user async for user in self.scan() if user.realm in realms}
        return [found[name] for name in sorted(found)]

    async def scan(self) -> AsyncIterator[User]:
        """Yield each user of each realm in no order. A user can come twice while Redis resizes its table of keys."""
        async for keys in self._redis.scan("user:{*}:*"):
            commands: list[Command] = [("HMGET", key, "record", "revision") for key in keys]
            for fields in await self._redis.read_many(commands):
                user = _parse(fields)
                if user is not None:
                    yield user

    async def put(self, user: User, applied: str | None = None) -> None:
        """Write a user's record under a new revision, and the seed entry that it comes from in the same script."""
        await self._put(self._redis.run, user, make_revision(), applied or "")

    async def replace(self, old: User | None, new: User, on_written: Callable[[], object] = lambda: None) -> None:
        """Write the record that replaces `old`. Durable on return. `on_written` is called before it is confirmed.

        If nothing has changed, an earlier write is confirmed. The record is not written then: a login may have replaced
        its hash meanwhile.
        """
        async with self._redis.durable(new.identity.shard) as scripts:
            if new == old:
                await scripts.leave_fence()
            else:
                await self._put(scripts.run, new, make_revision())
            on_written()

    async def put_many(self, users: Sequence[tuple[UserIdentity, User | None, User]]) -> None:
        """Write the new records of many users at once, each under a new revision. Seed entries in Redis stay.

        The record until now is None if there is none.
        """
        for part in split_parts(users, COMMANDS_AT_ONCE):
            known = [user_key(identity) for identity, old, _ in part if old]
            answers = await self._redis.read_many([("HGET", key, "record") for key in known])
            stored = dict(zip(known, answers, strict=True))
            commands: list[Command] = [
                ("HSET", key, "record", write_json(new, stored.get(key)), "revision", make_revision())
                for key, new in ((user_key(identity), new) for identity, _, new in part)
            ]
            await self._redis.write_many(commands)

    async def delete(self, identity: UserIdentity) -> None:
        """Delete a user's record. The seed entry that it came from stays, so no seed adds it again."""
        await self._redis.write("DEL", user_key(identity))

    async def remove(self, identity: UserIdentity) -> None:
        """Delete a user's record and the seed entry as last applied in one script."""
        await self._redis.run(
            _REMOVE,
            user_key=user_key(identity),
            seed_key=user_seed_key(identity.shard),
            user_digest=identity.digest,
        )

    async def replace_password_hash(self, user: User, new_hash: str, upgraded_from: str) -> None:
        """Store a stronger hash of the same password, unless the user's record or hash changed since it was read."""
        new = msgspec.structs.replace(user, password_hash=new_hash, upgraded_from=upgraded_from)
        await self._replace_password_hash(new, user.revision, sys.maxsize, user.password_hash or "")

    async def put_password(self, user: User, begun_ms: int) -> User | None:
        """Store the user's new password under a new revision, unless the record changed since it was read.

        `begun_ms` is when the login began that checked the former password. Returns the user with the new revision, or
        None if the record had changed, or if what the user has was revoked since then.
        """
        revision = make_revision()
        verdict = await self._replace_password_hash(user, revision, begun_ms)
        return msgspec.structs.replace(user, revision=revision) if verdict == "replaced" else None

    async def _put(self, run: Run, user: User, revision: str, applied: str = "") -> None:
        stored = await self._redis.read("HGET", user_key(user.identity), "record")
        await run(
            _PUT,
            user_key=user_key(user.identity),
            seed_key=user_seed_key(user.identity.shard),
            user_digest=user.identity.digest,
            record=write_json(msgspec.structs.replace(user, revision=""), stored),
            revision=revision,
            applied=applied,
        )

    async def _replace_password_hash(self, user: User, revision: str, begun_ms: int, former_hash: str = "") -> str:
        identity = user.identity
        stored = await self._redis.read("HGET", user_key(identity), "record")
        verdict = await self._redis.run(
            _REPLACE_PASSWORD_HASH,
            user_key=user_key(identity),
            mark_key=mark_key(identity.shard, identity.digest),
            revision=user.revision,
            new_revision=revision,
            record=write_json(user, stored),
            begun_ms=begun_ms,
            former_hash=former_hash,
        )
        return str(verdict[0])
