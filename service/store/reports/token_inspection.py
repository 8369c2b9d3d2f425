"""Inspection of a session for an operator: what Redis still holds about it, which is only read.

A family that ended before it expired leaves a tombstone for a day. An expired family leaves nothing. No client request
uses this module. All times are Redis times in milliseconds.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from service.gateway.access_record import access_key
from service.store.client import StoreClient
from service.store.keys import ended_key, family_key, mark_key
from service.store.records import FamilyRecord, TombstoneRecord, parse_family, parse_mark, parse_tombstone

State = Literal["live", "revoked", "over"]
"""The state of a record: usable; created at or before the mark of a revokeAll that has yet to delete it; expired."""


class KnownFamily(NamedTuple):
    """A family that has a record. `marked_at_ms` is the mark of the user's last revokeAll, or None."""

    digest: str
    record: FamilyRecord
    state: State
    access_tokens: int
    marked_at_ms: int | None


class EndedFamily(NamedTuple):
    """A family that has only a tombstone.

    The record's `presented` is the generation whose replay ended the family. `spent_ms` is when it had been spent.
    """

    digest: str
    record: TombstoneRecord


class TokenInspection:
    def __init__(self, redis: StoreClient) -> None:
        self._redis = redis

    async def find_family(self, shard: str, digest: str, now_ms: int) -> KnownFamily | EndedFamily | None:
        """Return what is known of a family, or None if it expired, ended more than a day ago, or never existed."""
        record, tombstone = await self._redis.read_many(
            [("GET", family_key(shard, digest)), ("GET", ended_key(shard, digest))]
        )
        if record is not None:
            family = parse_family(record)
            mark = await self._find_mark(shard, family.subject)
            keys = [access_key(shard, each) for each in family.access_digests]
            live = int(await self._redis.read("EXISTS", *keys)) if keys else 0
            return KnownFamily(digest, family, _judge_state(family, mark, now_ms), live, mark)
        return EndedFamily(digest, parse_tombstone(tombstone)) if tombstone is not None else None

    async def _find_mark(self, shard: str, subject: str) -> int | None:
        mark: Any = await self._redis.read("GET", mark_key(shard, subject))
        return None if mark is None else parse_mark(mark)


def _judge_state(record: FamilyRecord, marked_at_ms: int | None, now_ms: int) -> State:
    if marked_at_ms is not None and record.created_ms <= marked_at_ms:
        return "revoked"
    return "live" if now_ms < record.expires_ms else "over"
