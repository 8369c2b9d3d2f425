"""What Redis still knows of a token, for an operator who asks: facts that are only read, and found by digests.

A family that ended before its time is known by its tombstone for a day; of one that ran out nothing is left. No request
of a client comes by here. All times are milliseconds by Redis's clock.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from service.credentials import RefreshToken
from service.protocol.bearer import AccessGrant
from service.protocol.token_response import Lifetimes
from service.store.access_tokens import parse_grant
from service.store.codes import parse_redeemed
from service.store.connection import StoreConnection
from service.store.families import Ending
from service.store.keys import access_key, code_key, ended_key, family_key, mark_key, redeemed_key
from service.store.records import read_lines, reading
from service.tokens import RandomToken

State = Literal["live", "revoked", "over"]
"""By its record: of use; made at or before the mark of a revokeAll that has not deleted it yet; past its end."""

Standing = Literal["head", "spent", "spent_long_ago", "ahead"]
"""Of a generation: the one live token; spent, and welcome within the grace; spent before, so that its coming would end
the family; beyond what Redis knows, as after a failover."""


class KnownFamily(NamedTuple):
    """A family whose record is there. `marked_at_ms` is the mark of the user's last revokeAll, if there was one."""

    digest: str
    state: State
    head: int
    grant_type: str
    secret_used: bool
    client_id: str
    subject: str
    username: str
    scope: str
    created_at_ms: int
    expires_at_ms: int
    last_used_at_ms: int
    access_tokens: int
    marked_at_ms: int | None


class EndedFamily(NamedTuple):
    """A tombstone. `presented` is the generation whose replay ended the family, and when that one had been spent."""

    digest: str
    reason: Ending
    ended_at_ms: int
    head: int
    presented: int | None
    presented_spent_at_ms: int | None
    client_id: str
    subject: str
    username: str
    scope: str
    created_at_ms: int


class Generation(NamedTuple):
    """`spent_at_ms` is known for a while only; of generations that were merged it is the latest one's."""

    standing: Standing
    spent_at_ms: int | None = None
    grace_ends_at_ms: int | None = None


class InspectedAccessToken(NamedTuple):
    """Without a grant the token is not live: it ran out, was ended, or never was. Its family is not known then."""

    now_ms: int
    grant: AccessGrant | None
    family: KnownFamily | EndedFamily | None


class InspectedRefreshToken(NamedTuple):
    """Without a family nothing is known: it ran out, ended more than a day ago, or never was."""

    now_ms: int
    family: KnownFamily | EndedFamily | None
    generation: Generation | None


class WaitingCode(NamedTuple):
    state: State
    client_id: str
    subject: str
    username: str
    scope: str
    created_at_ms: int
    expires_at_ms: int


class ExchangedCode(NamedTuple):
    client_id: str
    family_digest: str
    family: KnownFamily | EndedFamily | None


class InspectedCode(NamedTuple):
    now_ms: int
    code: WaitingCode | ExchangedCode | None


class TokenInspection:
    def __init__(self, connection: StoreConnection, lifetimes: Lifetimes) -> None:
        self._connection = connection
        self._lifetimes = lifetimes

    async def inspect_access_token(self, token: RandomToken) -> InspectedAccessToken:
        now_ms = await self._connection.read_clock_ms()
        record = await self._connection.read("GET", access_key(token.shard, token.digest))
        if record is None:
            return InspectedAccessToken(now_ms, None, None)
        grant = parse_grant(record)
        family, _ = await self._find_family(token.shard, grant.family_digest, now_ms)
        return InspectedAccessToken(now_ms, grant, family)

    async def inspect_refresh_token(self, token: RefreshToken) -> InspectedRefreshToken:
        now_ms = await self._connection.read_clock_ms()
        family, record = await self._find_family(token.shard, token.family_digest, now_ms)
        generation = self._judge(record, token.generation, now_ms) if record else None
        return InspectedRefreshToken(now_ms, family, generation)

    async def inspect_code(self, token: RandomToken) -> InspectedCode:
        now_ms = await self._connection.read_clock_ms()
        keys = code_key(token.shard, token.digest), redeemed_key(token.shard, token.digest)
        issued, redeemed = await self._connection.read("MGET", *keys)
        if issued is not None:
            line = ["1", *read_lines(issued, "an authorization code", "1", 8)]
            return InspectedCode(now_ms, _parse_code(line, await self._find_mark(token.shard, line[3]), now_ms))
        if redeemed is None:
            return InspectedCode(now_ms, None)
        exchanged = parse_redeemed(redeemed)
        family, _ = await self._find_family(token.shard, exchanged.family_digest, now_ms)
        return InspectedCode(now_ms, ExchangedCode(exchanged.client_id, exchanged.family_digest, family))

    async def _find_family(
        self, shard: str, digest: str, now_ms: int
    ) -> tuple[KnownFamily | EndedFamily | None, list[str] | None]:
        """The family, and the lines of its record where it has one; see `lua/records.lua`."""
        keys = family_key(shard, digest), ended_key(shard, digest)
        record, tombstone = await self._connection.read("MGET", *keys)
        if record is not None:
            line = ["1", *read_lines(record, "a session", "1", 13)]
            return self._parse_family(digest, line, await self._find_mark(shard, line[6]), now_ms), line
        return _parse_tombstone(digest, tombstone) if tombstone is not None else None, None

    @reading("a session")
    def _parse_family(self, digest: str, line: list[str], marked_at_ms: int | None, now_ms: int) -> KnownFamily:
        created_at_ms, expires_at_ms = int(line[2]), int(line[3])
        if self._lifetimes.session_max_age_ms:
            expires_at_ms = min(expires_at_ms, created_at_ms + self._lifetimes.session_max_age_ms)
        return KnownFamily(
            digest=digest,
            state=_find_state(created_at_ms, expires_at_ms, marked_at_ms, now_ms),
            head=int(line[1]),
            grant_type=line[4],
            secret_used=line[5] == "1",
            client_id=line[7],
            subject=line[6],
            username=line[8],
            scope=line[9],
            created_at_ms=created_at_ms,
            expires_at_ms=expires_at_ms,
            last_used_at_ms=int(line[11].rpartition(":")[2] or created_at_ms),
            access_tokens=sum(ends_ms > now_ms for _, ends_ms in _read_entries(line[13])),
            marked_at_ms=marked_at_ms,
        )

    @reading("a session")
    def _judge(self, line: list[str], number: int, now_ms: int) -> Generation:
        """As spend_refresh_token.lua would."""
        head, floor, grace_ms = int(line[1]), int(line[10]), self._lifetimes.refresh_grace_ms
        if number >= head:
            return Generation("head" if number == head else "ahead")
        spent = [ms for last, ms in _read_entries(line[11]) if floor <= number <= int(last)]
        if not spent:
            return Generation("spent_long_ago")
        grace_ends_at_ms = spent[0] + grace_ms
        return Generation("spent" if now_ms < grace_ends_at_ms else "spent_long_ago", spent[0], grace_ends_at_ms)

    async def _find_mark(self, shard: str, subject: str) -> int | None:
        mark: Any = await self._connection.read("GET", mark_key(shard, subject))
        with reading("a revokeAll"):
            return None if mark is None else int(mark)


@reading("an authorization code")
def _parse_code(line: list[str], marked_at_ms: int | None, now_ms: int) -> WaitingCode:
    """See `codes.py` for the lines of the record."""
    created_at_ms, expires_at_ms = int(line[1]), int(line[2])
    state = _find_state(created_at_ms, expires_at_ms, marked_at_ms, now_ms)
    return WaitingCode(state, line[4], line[3], line[7], line[8], created_at_ms, expires_at_ms)


def _find_state(created_at_ms: int, expires_at_ms: int, marked_at_ms: int | None, now_ms: int) -> State:
    if marked_at_ms is not None and created_at_ms <= marked_at_ms:
        return "revoked"
    return "live" if now_ms < expires_at_ms else "over"


@reading("a session that has ended")
def _parse_tombstone(digest: str, record: bytes) -> EndedFamily:
    """See `lua/records.lua` for the lines of the record."""
    line = read_lines(record, "a session that has ended", "1", 10)
    ended_ms, reason, head, presented, spent_ms, created_ms, client_id, subject, username, scope = line
    return EndedFamily(
        digest=digest,
        reason=reason,  # type: ignore[arg-type]
        ended_at_ms=int(ended_ms),
        head=int(head),
        presented=int(presented) if presented else None,
        presented_spent_at_ms=int(spent_ms) if spent_ms else None,
        client_id=client_id,
        subject=subject,
        username=username,
        scope=scope,
        created_at_ms=int(created_ms),
    )


def _read_entries(text: str) -> list[tuple[str, int]]:
    """Return the name and the time of each entry, without the note that may stand behind the name."""
    return [(name.partition("/")[0], int(ms)) for name, _, ms in (entry.partition(":") for entry in text.split())]
