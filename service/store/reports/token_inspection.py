"""Inspection of a session for an operator: what Redis still holds about it, which is only read.

A family that ended before it expired leaves a tombstone for a day. An expired family leaves nothing. No client request
uses this module. All times are Redis times in milliseconds.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from service.gateway.access_record import access_key
from service.store.client import StoreClient
from service.store.keys import ended_key, family_key, mark_key
from service.store.records import FamilyRecord, TombstoneRecord, parse_family, parse_mark, parse_tombstone

State = Literal["live", "revoked", "over"]
"""The state of a record: usable; created at or before the mark of a revokeAll that has yet to delete it; expired."""


class KnownFamily(NamedTuple):
    """A family that has a record. `marked_at_ms` is the mark of the user's last revokeAll, or 0."""

    record: FamilyRecord
    state: State
    access_tokens: int
    marked_at_ms: int


async def find_family(redis: StoreClient, shard: str, digest: str, now_ms: int) -> KnownFamily | TombstoneRecord | None:
    """Return what is known of a family, which is a tombstone once it ended.

    Returns None if it expired, ended more than a day ago, or never existed.
    """
    record, tombstone = await redis.read_many([("GET", family_key(shard, digest)), ("GET", ended_key(shard, digest))])
    if record is not None:
        family = parse_family(record)
        marked_at_ms = parse_mark(await redis.read("GET", mark_key(shard, family.user_digest)))
        keys = [access_key(shard, each) for each in family.access_digests]
        live = int(await redis.read("EXISTS", *keys)) if keys else 0
        return KnownFamily(family, _judge_state(family, marked_at_ms, now_ms), live, marked_at_ms)
    return None if tombstone is None else parse_tombstone(tombstone)


def _judge_state(record: FamilyRecord, marked_at_ms: int, now_ms: int) -> State:
    if record.created_ms <= marked_at_ms:
        return "revoked"
    return "live" if now_ms < record.expires_ms else "over"
