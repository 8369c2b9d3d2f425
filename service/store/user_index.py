"""The index of a user: which families, codes, consents and browser sessions there are.

Clauses: SPEC §3
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

from service.protocol.user import UserIdentity
from service.redis_client.connection import Command
from service.store.client import StoreClient
from service.store.keys import index_key, make_key, mark_key
from service.store.records import BrowserSessionRecord, FamilyRecord, parse_mark

MEMBERS_AT_ONCE: Final = 500

MemberKind = Literal["family", "browser"]
Record = TypeVar("Record", FamilyRecord, BrowserSessionRecord)


async def list_records(
    redis: StoreClient,
    identity: UserIdentity,
    kind: MemberKind,
    most: int,
    parse: Callable[[Any], Record],
    *,
    members_at_once: int = MEMBERS_AT_ONCE,
) -> tuple[list[tuple[str, Record]], bool]:
    """Return at most `most` records of one kind, each with its digest, and True if there may be more.

    Records that a revokeAll covers are left out. Those whose entries in the index expire last are chosen.
    """
    shard, user_digest = identity.shard, identity.digest
    digests = await _list_members(redis, identity, kind, most, members_at_once)
    commands: list[Command] = [("GET", make_key(kind, shard, digest)) for digest in digests[:most]]
    mark, *records = await redis.read_many([("GET", mark_key(shard, user_digest)), *commands])
    marked_ms = parse_mark(mark)
    found = [(digest, parse(record)) for digest, record in zip(digests, records, strict=False) if record]
    return [pair for pair in found if pair[1].created_ms > marked_ms], len(digests) > most


async def _list_members(
    redis: StoreClient, identity: UserIdentity, kind: MemberKind, most: int, members_at_once: int
) -> list[str]:
    """Return the digests of one kind, those first that expire last. If there are more than `most`, the list may be cut.

    The list then has more than `most` entries. The index is read in parts of `members_at_once`, because it also holds
    members of other kinds, possibly many.
    """
    prefix = f"{kind}:".encode()
    key, digests, start = index_key(identity.shard, identity.digest), list[str](), 0
    while True:
        members = await redis.read("ZREVRANGE", key, start, start + members_at_once - 1)
        digests += [member.removeprefix(prefix).decode() for member in members if member.startswith(prefix)]
        if len(digests) > most or len(members) < members_at_once:
            return list(dict.fromkeys(digests))
        start += members_at_once
