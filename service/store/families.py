"""Refresh families: started, spent, ended; one live refresh token each, however many ask at once.

Clauses: RFC 6749 §4.3.3, §5.1, §6, §10.4, RFC 6819 §5.2.2.3, SPEC §3, §4.2
"""

from __future__ import annotations

from itertools import count
from typing import Final, Literal, NamedTuple, get_args

from service.crypto.keyring import RefreshToken
from service.gateway.access_record import access_key
from service.protocol.token_form import RandomToken
from service.protocol.token_response import Lifetimes
from service.protocol.user import User, UserIdentity
from service.store.client import StoreClient
from service.store.keys import family_key, index_key, mark_key, user_key
from service.store.records import parse_family
from service.store.scripts import load_script

Success = Literal["rotated", "repeated", "recovered"]
SpendRefusal = Literal["replayed", "foreign", "without_secret", "withdrawn", "beyond", "unknown"]
EndReason = Literal[
    "replayed",
    "code_replayed",
    "revoked",
    "revoke_all",
    "signed_out_there",
    "signed_out_everywhere",
    "withdrawn",
    "console",
]
"""Why a family ended before its time, as its tombstone says it.

A refresh token or a code came again; its client revoked it, or somebody called revokeAll; the user ended it, or all of
them, on their page; client, realm or user lost what it rested on; an operator ended it.
"""

_SUCCESSES: Final = frozenset(get_args(Success))
_REFUSALS: Final = frozenset(get_args(SpendRefusal))

_MEMBERS_AT_ONCE: Final = 500

_START: Final = load_script("start_family")
_SPEND: Final = load_script("spend_refresh_token")
_END: Final = load_script("end_family")


class Spent(NamedTuple):
    """A generation that bought an access token; `head` is the generation of the refresh token to answer with.

    `streak` and `replays` are 0 unless this was a replay. `streak` is how many generations in a row were replayed by
    now; 0 where this one was replayed before. `replays` is how often this one was by now; 6 stands for six or more.
    """

    verdict: Success
    head: int
    lives_ms: int
    scope: str
    username: str
    streak: int
    replays: int


class RefreshRefused(NamedTuple):
    """Only "replayed" changed anything: the family has ended. `username` is known there alone."""

    verdict: SpendRefusal
    username: str = ""


class FamilyView(NamedTuple):
    """A family as its user sees it: whose it is, what it may do, since when, and when it was last refreshed.

    Its record may be there for longer than `expires_at_ms`, as long as its access tokens live.
    """

    digest: str
    head: int
    client_id: str
    subject: str
    username: str
    scope: str
    created_at_ms: int
    expires_at_ms: int
    last_used_at_ms: int


class Families:
    def __init__(self, redis: StoreClient, lifetimes: Lifetimes) -> None:
        self._redis = redis
        self._lifetimes = lifetimes

    async def start(
        self,
        user: User,
        *,
        client_id: str,
        scope: str,
        secret_used: bool,
        refresh_token: RefreshToken,
        access_token: RandomToken,
    ) -> int | None:
        """The access token's life in milliseconds; None where the user's record is not the one that was checked."""
        identity = user.identity
        verdict = await self._redis.run(
            _START,
            [
                family_key(identity.shard, refresh_token.family_digest),
                access_key(identity.shard, access_token.digest),
                user_key(identity),
            ],
            [
                refresh_token.family_digest,
                access_token.digest,
                user.revision,
                identity.subject,
                client_id,
                user.username,
                scope,
                int(secret_used),
                self._lifetimes.access_token_ms,
                self._lifetimes.refresh_token_ms,
                self._lifetimes.session_max_age_ms or 0,
                self._redis.clock_offset_ms(),
            ],
        )
        return int(verdict[1]) if verdict[0] == "started" else None

    async def spend(
        self,
        refresh_token: RefreshToken,
        *,
        client_id: str,
        secret_used: bool,
        wanted_scope: str,
        allowed_scope: str,
        access_token: RandomToken,
    ) -> Spent | RefreshRefused:
        """`wanted_scope` is empty where the request names none; `allowed_scope` is all that the client may have."""
        digest = refresh_token.family_digest
        verdict = await self._redis.run(
            _SPEND,
            [family_key(refresh_token.shard, digest), access_key(refresh_token.shard, access_token.digest)],
            [
                digest,
                access_token.digest,
                refresh_token.generation,
                client_id,
                int(secret_used),
                wanted_scope,
                allowed_scope,
                self._lifetimes.access_token_ms,
                self._lifetimes.refresh_token_ms,
                self._lifetimes.session_max_age_ms or 0,
                self._lifetimes.refresh_grace_ms,
                self._redis.clock_offset_ms(),
            ],
        )
        if verdict[0] in _SUCCESSES:
            return Spent(*verdict)  # type: ignore[arg-type]
        assert verdict[0] in _REFUSALS, verdict[0]
        return RefreshRefused(*verdict)  # type: ignore[arg-type]

    async def end(self, shard: str, family_digest: str, *, client_id: str, reason: EndReason) -> str | None:
        """Whose family it was; None where there was none, or it is another client's. Durable at its return."""
        async with self._redis.durable(shard) as scripts:
            verdict = await scripts.run(
                _END,
                [family_key(shard, family_digest)],
                [family_digest, client_id, reason, self._redis.clock_offset_ms()],
            )
            if verdict[0] == "unknown":
                await scripts.leave_fence()
        return str(verdict[1]) if verdict[0] == "ended" else None

    async def find(self, shard: str, family_digest: str) -> FamilyView | None:
        fields = await self._redis.read("HGETALL", family_key(shard, family_digest))
        return self._parse_view(family_digest, fields) if fields else None

    async def find_live(self, refresh_token: RefreshToken) -> FamilyView | None:
        """Return the family whose newest refresh token this is, or None.

        None for spent generations too: that they may come again within the grace is for retries. A generation newer
        than the head was given out before Redis lost its last writes, and a refresh goes on from it.

        Clauses: RFC 7662 §2.2, §4 (expiry and revocation are looked at)
        """
        family = await self.find(refresh_token.shard, refresh_token.family_digest)
        if family is None or refresh_token.generation < family.head:
            return None
        mark = await self._redis.read("GET", mark_key(refresh_token.shard, family.subject))
        is_revoked = family.created_at_ms <= int(mark or 0)
        is_over = await self.read_clock_ms() >= family.expires_at_ms
        return None if is_revoked or is_over else family

    async def read_clock_ms(self) -> int:
        """The time that those of a view are to be seen from."""
        return await self._redis.read_clock_ms()

    async def list_of_user(self, identity: UserIdentity, most: int) -> tuple[list[FamilyView], bool]:
        """Of the user's live families the longest-lived, the last used first, and whether there may be more."""
        shard, subject = identity.shard, identity.subject
        families: list[str] = []
        for start in count(0, _MEMBERS_AT_ONCE):
            # Codes, consents and browser sessions stand there too, and may be many.
            stop = start + _MEMBERS_AT_ONCE - 1
            members = await self._redis.read("ZREVRANGE", index_key(shard, subject), start, stop)
            families += [member[7:].decode() for member in members if member[:7] == b"family:"]
            if len(families) > most or len(members) < _MEMBERS_AT_ONCE:
                break
        mark, *records = await self._redis.read_many(
            [("GET", mark_key(shard, subject)), *(("HGETALL", family_key(shard, digest)) for digest in families[:most])]
        )
        found = [self._parse_view(digest, fields) for digest, fields in zip(families, records, strict=False) if fields]
        live = [family for family in found if family.created_at_ms > int(mark or 0)]
        return sorted(live, key=lambda family: family.last_used_at_ms, reverse=True), len(families) > most

    def _parse_view(self, family_digest: str, fields: dict[bytes, bytes]) -> FamilyView:
        """A greatest age counts for families that exist, too."""
        family = parse_family(fields)
        expires_at_ms = family.expires_ms
        if self._lifetimes.session_max_age_ms:
            expires_at_ms = min(expires_at_ms, family.created_ms + self._lifetimes.session_max_age_ms)
        return FamilyView(
            digest=family_digest,
            head=family.head,
            client_id=family.client_id,
            subject=family.subject,
            username=family.username,
            scope=family.scope,
            created_at_ms=family.created_ms,
            expires_at_ms=expires_at_ms,
            last_used_at_ms=family.used_ms,
        )
