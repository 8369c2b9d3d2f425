"""Scans of the sessions of all users: for the sessions of a client or a realm, or for all users who have any.

Sessions are indexed by user only. Clients and realms change rarely, and an index by client would add a cost to every
refresh. A scan of sessions reads every family and code once, in batches, on every master.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Final

from service.protocol.authorization_code import AuthorizationCode
from service.redis_client.connection import Command
from service.redis_client.deadline import UnreadableRecord
from service.redis_client.slots import SlotIsMoving
from service.store.client import StoreClient
from service.store.records import FamilyRecord, parse_code, parse_family
from service.store.sessions.families import EndReason, Families

Session = AuthorizationCode | FamilyRecord
"""A session, or a code that would become one."""

_FORMS: Final[dict[str, Callable[[bytes], Session]]] = {"code": parse_code, "family": parse_family}


class SessionScan:
    listed_keys = 4_000_000
    """The number of keys in Redis from which users are listed in groups of shards. A name takes 163 bytes here."""

    def __init__(self, redis: StoreClient, families: Families) -> None:
        self._redis = redis
        self._families = families

    async def end_sessions(
        self, client_ids: Collection[str], find_reason: Callable[[Session], EndReason | None]
    ) -> int:
        """End the sessions of these clients that have a reason to end. Returns the number of ended families and codes.

        No session issued before the call is missed. A key that exists throughout is seen, even if its slot moves to
        another node during the scan. Codes are scanned before families: a code exchanged before its turn is a family
        when the scan of families begins, and a code whose turn comes first is deleted.
        """
        ended = 0
        left: list[tuple[str, str, EndReason]] = []
        moving: set[str] = set()
        async for batch in self.scan_sessions():
            for key, session in batch:
                reason = find_reason(session) if session.client_id in client_ids else None
                if reason is None:
                    continue
                _, shard, _ = _split_key(key)
                try:
                    if shard not in moving:
                        ended += await self._end(key, session.client_id, reason)
                        continue
                except SlotIsMoving:
                    moving.add(shard)
                except UnreadableRecord:
                    pass  # the last attempt below raises it, once the others have ended
                left.append((key, session.client_id, reason))
        for key, client_id, reason in left:
            ended += await self._end(key, client_id, reason)
        return ended

    async def list_shard_groups(self) -> Sequence[str]:
        """Return the groups in which a sweep lists users. A group is the digits that its shards begin with.

        A large cluster has a group for each shard. Since Redis 7.4 and Valkey 8 a scan of a shard reads only its slot.
        """
        masters = await self._redis.list_masters()
        groups = sum([await self._redis.count_keys(master) for master in masters]) / self.listed_keys
        digits = 0 if groups <= 1 else 1 if groups <= 16 or len(masters) == 1 else 3
        return [f"{number:0{digits}x}"[:digits] for number in range(16**digits)]

    async def list_users(self, group: str = "", *, with_records: bool) -> Collection[tuple[str, str]]:
        """Return the users of a group, each a shard and a user_digest, who have anything that revokeAll would end.

        With `with_records` also users who have only a record, since they may be about to log in. `index` keys are
        scanned before `revoked` keys, so an entry that a concurrent revokeAll moves from one to the other is found.
        """
        found = dict[str, str]()
        for kind in ("user", "index", "revoked") if with_records else ("index", "revoked"):
            async for keys in self._redis.scan_whole(f"{kind}:{{{group:?<3}}}:*"):
                found.update((user_digest, shard) for _, shard, user_digest in map(_split_key, keys))
        return [(shard, user_digest) for user_digest, shard in found.items()]

    async def scan_sessions(self) -> AsyncIterator[list[tuple[str, Session]]]:
        """Yield all sessions with their keys, in batches. Raises UnreadableRecord at the end if one cannot be read."""
        unreadable: UnreadableRecord | None = None
        for kind, parse in _FORMS.items():
            async for keys in self._redis.scan_whole(f"{kind}:{{*}}:*"):
                commands: list[Command] = [("GET", key) for key in keys]
                records = zip(keys, await self._redis.read_many(commands), strict=True)
                batch = []
                for key, record in records:
                    try:
                        batch += [(key, parse(record))] if record else []
                    except UnreadableRecord as error:
                        unreadable = error
                yield batch
        if unreadable:
            raise unreadable

    async def _end(self, key: str, client_id: str, reason: EndReason) -> bool:
        """Return True if this call ended it."""
        kind, shard, digest = _split_key(key)
        if kind == "code":
            return bool(await self._redis.write("DEL", key))
        return await self._families.end(shard, digest, client_id=client_id, reason=reason) is not None


def _split_key(key: str) -> tuple[str, str, str]:
    """Return the kind, the shard and the name of a key."""
    kind, shard, name = key.split(":", 2)
    return kind, shard.strip("{}"), name
