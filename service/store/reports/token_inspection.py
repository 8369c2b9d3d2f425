"""Inspection of a token for an operator: what Redis still holds about it, found by digest and only read.

A family that ended before it expired leaves a tombstone for a day. An expired family leaves nothing. No client request
uses this module. All times are Redis times in milliseconds.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from service.crypto.keyring import RefreshToken
from service.gateway.access_record import access_key, parse_grant
from service.protocol.bearer import AccessGrant
from service.protocol.token_form import RandomToken
from service.protocol.token_response import Lifetimes
from service.store import records
from service.store.client import StoreClient
from service.store.families import parse_capped_family
from service.store.keys import code_key, ended_key, family_key, mark_key, redeemed_key
from service.store.records import CodeRecord, FamilyRecord, TombstoneRecord, reading

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


class InspectedAccessToken(NamedTuple):
    """The state of an access token in Redis.

    If `grant` is None, the token is not live: it expired, was revoked or never existed. Its family is then not known.
    """

    now_ms: int
    grant: AccessGrant | None
    family: KnownFamily | EndedFamily | None


class InspectedRefreshToken(NamedTuple):
    """The state of a refresh token in Redis.

    If `family` is None, nothing is known: the family expired, ended more than a day ago, or never existed.
    """

    now_ms: int
    family: KnownFamily | EndedFamily | None


class WaitingCode(NamedTuple):
    state: State
    record: CodeRecord


class ExchangedCode(NamedTuple):
    client_id: str
    family_digest: str
    family: KnownFamily | EndedFamily | None


class InspectedCode(NamedTuple):
    now_ms: int
    code: WaitingCode | ExchangedCode | None


class TokenInspection:
    def __init__(self, redis: StoreClient, lifetimes: Lifetimes) -> None:
        self._redis = redis
        self._lifetimes = lifetimes

    async def inspect_access_token(self, token: RandomToken) -> InspectedAccessToken:
        now_ms = await self._redis.read_clock_ms()
        record = await self._redis.read("GET", access_key(token.shard, token.digest))
        if record is None:
            return InspectedAccessToken(now_ms, None, None)
        grant = parse_grant(record)
        family = await self._find_family(token.shard, grant.family_digest, now_ms)
        return InspectedAccessToken(now_ms, grant, family)

    async def inspect_refresh_token(self, token: RefreshToken) -> InspectedRefreshToken:
        now_ms = await self._redis.read_clock_ms()
        return InspectedRefreshToken(now_ms, await self._find_family(token.shard, token.family_digest, now_ms))

    async def inspect_code(self, token: RandomToken) -> InspectedCode:
        now_ms = await self._redis.read_clock_ms()
        keys = code_key(token.shard, token.digest), redeemed_key(token.shard, token.digest)
        issued, redeemed = await self._redis.read("MGET", *keys)
        if issued is not None:
            code = records.parse_code(issued)
            mark = await self._find_mark(token.shard, code.subject)
            return InspectedCode(now_ms, WaitingCode(_judge_state(code, mark, now_ms), code))
        if redeemed is None:
            return InspectedCode(now_ms, None)
        exchanged = records.parse_redeemed(redeemed)
        family = await self._find_family(token.shard, exchanged.family_digest, now_ms)
        return InspectedCode(now_ms, ExchangedCode(exchanged.client_id, exchanged.family_digest, family))

    async def _find_family(self, shard: str, digest: str, now_ms: int) -> KnownFamily | EndedFamily | None:
        fields, tombstone = await self._redis.read_many(
            [("HGETALL", family_key(shard, digest)), ("GET", ended_key(shard, digest))]
        )
        if fields:
            family = parse_capped_family(fields, self._lifetimes)
            mark = await self._find_mark(shard, family.subject)
            live = await self._count_live(shard, family)
            return KnownFamily(digest, family, _judge_state(family, mark, now_ms), live, mark)
        return EndedFamily(digest, records.parse_tombstone(tombstone)) if tombstone is not None else None

    async def _count_live(self, shard: str, family: FamilyRecord) -> int:
        keys = [access_key(shard, digest) for digest in family.access_digests]
        return int(await self._redis.read("EXISTS", *keys)) if keys else 0

    async def _find_mark(self, shard: str, subject: str) -> int | None:
        mark: Any = await self._redis.read("GET", mark_key(shard, subject))
        with reading("a revokeAll"):
            return None if mark is None else int(mark)


def _judge_state(record: FamilyRecord | CodeRecord, marked_at_ms: int | None, now_ms: int) -> State:
    if marked_at_ms is not None and record.created_ms <= marked_at_ms:
        return "revoked"
    return "live" if now_ms < record.expires_ms else "over"
