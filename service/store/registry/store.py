"""The records of the registry, what must still end after a change of one, and the locks under which they change.

Clauses: SPEC §2.3, §3
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from service.protocol.client import Client
from service.protocol.provider import IdentityProvider
from service.protocol.user import User
from service.redis_client.connection import gather_answers
from service.redis_client.deadline import UnreadableRecord
from service.redis_client.lock import RedisLock
from service.store.client import StoreClient
from service.store.keys import registry_key
from service.store.registry.clients import CLIENTS, Clients
from service.store.registry.realms import REALMS, Realms
from service.store.registry.record_kind import RecordKind
from service.store.registry.seeds import Seeds
from service.store.registry.user_ids import UserIds
from service.store.registry.users import USERS, Users
from service.store.sessions.families import UserEnding

LongWork = Literal["seed", "scan", "everybody"]
"""Applying a seed, a scan of sessions, and revoking what all users have. Others change records meanwhile."""

PendingScan = Literal["pending_scans", "pending_realm_scans"]

_KINDS: Final[dict[str, RecordKind[Any, Any]]] = {each.kind: each for each in (CLIENTS, REALMS, USERS)}

Found = tuple[Client | IdentityProvider | User | None, str]
"""A record, or None if there is none. The text is empty, or says why the record cannot be read."""


class RegistryStore:
    """The registry in Redis."""

    def __init__(self, redis: StoreClient) -> None:
        self._redis = redis
        self.clients = Clients(redis, CLIENTS)
        self.users = Users(redis, USERS)
        self.ids = UserIds(redis, self.users)
        self.realms = Realms(redis, REALMS)
        self.seeds = Seeds(redis)

    async def read_records(self, names: Sequence[tuple[str, Any]]) -> list[Found]:
        """Return the records of these kinds and names."""
        return await gather_answers([self._read_record(_KINDS[kind], name) for kind, name in names])

    async def _read_record(self, kind: RecordKind[Any, Any], name: Any) -> Found:
        try:
            return kind.parse(await self._redis.read(*kind.command(name))), ""
        except UnreadableRecord as error:
            return None, str(error)

    async def has_pending(self) -> bool:
        """Return True if sessions of users, clients or realms must still end, whichever process made the change."""
        keys = (registry_key(f"pending_{what}") for what in ("revocations", "scans", "realm_scans"))
        return bool(await self._redis.read("EXISTS", *keys))

    async def add_pending_users(self, users: Sequence[UserEnding]) -> None:
        """Record users whose sessions must end before a change is complete. Call this before the change is written."""
        if users:
            await self._redis.write("SADD", registry_key("pending_revocations"), *map(":".join, users))

    async def list_pending_users(self) -> list[UserEnding]:
        """Return the users with a pending revocation. One that this version cannot read stays pending."""
        members = await self._redis.read("SMEMBERS", registry_key("pending_revocations"))
        parts = (member.decode(errors="replace").split(":") for member in members)
        return [UserEnding(*each) for each in parts if len(each) == len(UserEnding._fields)]

    async def clear_pending_users(self, users: Sequence[UserEnding]) -> None:
        if users:
            await self._redis.write("SREM", registry_key("pending_revocations"), *map(":".join, users))

    async def list_pending_scans(self, kind: PendingScan) -> dict[str, str]:
        """Return a mark for each client or realm whose sessions must be scanned. Each change makes another mark.

        The mark of a client begins with its narrowing and a colon.
        """
        fields = await self._redis.read("HGETALL", registry_key(kind))
        return {name.decode(): mark.decode() for name, mark in fields.items()}

    async def clear_pending_scans(self, kind: PendingScan, marks: Mapping[str, str]) -> None:
        """Clear these marks, except those that a later change replaced. The caller holds the lock."""
        present = await self.list_pending_scans(kind)
        done = [name for name, mark in marks.items() if present.get(name) == mark]
        if done:
            await self._redis.write("HDEL", registry_key(kind), *done)

    def make_lock(
        self, on_wait: Callable[[], object] = lambda: None, *, wait_seconds: float | None = None
    ) -> RedisLock:
        """Return the lock to hold while changing a record.

        If another holder keeps it for `wait_seconds`, taking
        it raises LockHeld. If `wait_seconds` is None, taking it waits without a limit.
        """
        return RedisLock(self._redis, registry_key("lock"), on_wait, wait_seconds)

    def make_lock_for(self, work: LongWork, on_wait: Callable[[], object] = lambda: None) -> RedisLock:
        """Return the lock to hold during long work. Its holder may take the other lock, but not vice versa."""
        return RedisLock(self._redis, registry_key("lock", work), on_wait)
