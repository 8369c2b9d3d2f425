"""Families of refresh tokens: start, rotation and end. People read "session" where the code says "family".

A family has one live refresh token, even when requests race.

Clauses: RFC 6749 §4.3.3, §5.1, §6, §10.4, RFC 6819 §5.2.2.3, SPEC §3, §4.2
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from service.crypto.keyring import RefreshToken
from service.gateway.access_record import SHARDS, access_key
from service.observability.audit import record_event
from service.protocol.client import Client, Lifetimes
from service.protocol.scope import parse_realm
from service.protocol.token_form import RandomToken
from service.protocol.user import Login, User, UserIdentity, UserNarrowing
from service.protocol.verdicts import SUCCESS_EVENTS, SpendRefusal, Success
from service.store.client import StoreClient, load_script
from service.store.keys import family_key, mark_key, user_key
from service.store.records import FamilyRecord, parse_family, parse_mark
from service.store.user_index import list_records

Revocation = Literal["revoked", "revoke_all", "signed_out", "signed_out_everywhere", "provider_logout", "cli"]
Deprivation = Literal["user_deleted", "client_disabled", "client_deleted", "client_changed", "realm_deleted"]
EndReason = Literal["replayed", "code_replayed", "session_displaced", "too_old", Revocation, UserNarrowing, Deprivation]
"""The reason, recorded in the tombstone, why a family ended before it expired.

- replayed, code_replayed: a refresh token or an authorization code was used again.
- revoked: the client revoked the family.
- revoke_all: revokeAll was called.
- signed_out, signed_out_everywhere: the user ended this family, or everything, on the sessions page.
- provider_logout: the identity provider reported that the login which the family came from has ended.
- session_displaced: the user had as many families as one may have, and logged in once more.
- too_old: a refresh found the family older than the maximum age, which had been shortened.
- password_set, role_removed, …: a change of the user, the client or the realm. A client_changed lost a right that the
  family depended on, and role_removed is also of a realm's default role.
- console: an operator ended the family.
"""


class UserEnding(NamedTuple):
    """A user of whom everything must end, and why."""

    shard: str
    digest: str
    reason: EndReason

    @classmethod
    def of(cls, user: UserIdentity, reason: EndReason) -> UserEnding:
        return cls(user.shard, user.digest, reason)


_START: Final = load_script("sessions/start_family")
_SPEND: Final = load_script("sessions/spend_refresh_token")
_END: Final = load_script("sessions/end_family")


class Spent(NamedTuple):
    """The result of a successful refresh. `head` is the generation of the refresh token to return.

    `lives_ms` is the lifetime of the new access token. `streak` and `replays` are 0 unless the request was a replay.
    `streak` is the number of generations replayed in a row, or 0 if this generation was also the last one replayed.
    `replays` tells how often this generation was replayed with no other in between, at most 6.
    """

    verdict: Success
    head: int
    lives_ms: int
    scope: str
    username: str
    subject: str
    streak: int
    replays: int


class RefreshRefused(NamedTuple):
    """A refused refresh. The verdict "replayed" has ended the family, and so has "unknown" if the
    family exceeded its maximum age.

    `item` is set for the verdict "beyond": an item of the wanted scope that was not granted. The other fields are those
    of the family. They are set for the verdicts "replayed", "foreign" and "without_secret".
    """

    verdict: SpendRefusal
    item: str = ""
    scope: str = ""
    username: str = ""
    subject: str = ""


class Families:
    """The families of all users."""

    def __init__(self, redis: StoreClient, lifetimes: Lifetimes) -> None:
        self._redis = redis
        self._lifetimes = lifetimes

    async def start(
        self,
        login: Login,
        *,
        client: Client,
        scope: str,
        secret_used: bool,
        refresh_token: RefreshToken,
        access_token: RandomToken,
    ) -> int | None:
        """Start a family after a password login.

        Returns the access token's lifetime in milliseconds, or None if the user's record changed since the check,
        or the user's sessions were revoked since the login began.
        """
        user, identity, lifetimes = login.user, login.user.identity, self._lifetimes.of(client)
        verdict = await self._redis.run(
            _START,
            family_key=family_key(identity.shard, refresh_token.family_digest),
            access_key=access_key(identity.shard, access_token.digest),
            user_key=user_key(identity),
            family_digest=refresh_token.family_digest,
            access_digest=access_token.digest,
            revision=user.revision,
            user_digest=identity.digest,
            subject=user.subject,
            sid=login.sid,
            begun_ms=login.begun_ms,
            client_id=client.client_id,
            username=user.username,
            scope=scope,
            secret_used=int(secret_used),
            access_ttl_ms=lifetimes.access_token_ms,
            refresh_ttl_ms=lifetimes.refresh_token_ms,
            max_age_ms=lifetimes.session_max_age_ms or 0,
            sessions_per_user=lifetimes.sessions_per_user,
        )
        record_displaced(verdict[2:])
        return int(verdict[1]) if verdict[0] == "started" else None

    async def spend(
        self,
        refresh_token: RefreshToken,
        *,
        client: Client,
        secret_used: bool,
        wanted_scope: str,
        access_token: RandomToken,
    ) -> Spent | RefreshRefused:
        """Exchange a refresh token for an access token and the next refresh token, or answer its replay.

        The change is not durable: a generation that Redis loses is recovered.

        `wanted_scope` is the requested scope, empty if there is none.
        """
        digest, lifetimes = refresh_token.family_digest, self._lifetimes.of(client)
        verdict = await self._redis.run(
            _SPEND,
            family_key=family_key(refresh_token.shard, digest),
            access_key=access_key(refresh_token.shard, access_token.digest),
            family_digest=digest,
            access_digest=access_token.digest,
            generation=refresh_token.generation,
            client_id=client.client_id,
            secret_used=int(secret_used),
            wanted_scope=wanted_scope,
            allowed_scope=client.scope,
            access_ttl_ms=lifetimes.access_token_ms,
            refresh_ttl_ms=lifetimes.refresh_token_ms,
            max_age_ms=lifetimes.session_max_age_ms or 0,
            grace_ms=lifetimes.refresh_grace_ms,
        )
        if verdict[0] in SUCCESS_EVENTS:
            return Spent(*verdict)  # type: ignore[arg-type]
        return RefreshRefused(*verdict)  # type: ignore[arg-type]

    async def end(self, shard: str, family_digest: str, *, client_id: str, reason: EndReason) -> User | None:
        """End the family and delete its access tokens. Durable on return.

        Returns its user without a record, or None if the family is unknown or another client's.
        """
        async with self._redis.durable(shard) as scripts:
            verdict = await scripts.run(
                _END,
                family_key=family_key(shard, family_digest),
                family_digest=family_digest,
                client_id=client_id,
                reason=reason,
            )
            if verdict[0] == "unknown":
                await scripts.leave_fence()
        return read_owner(verdict) if verdict[0] == "ended" else None

    async def find(self, shard: str, family_digest: str) -> FamilyRecord | None:
        record = await self._redis.read("GET", family_key(shard, family_digest))
        return None if record is None else parse_family(record)

    async def find_shard(self, family_digest: str) -> tuple[str, FamilyRecord] | None:
        """Return the shard and the record of a family of which only the digest is known, or None.

        All shards are asked. No client request uses this.
        """
        records = await self._redis.read_many([("GET", family_key(shard, family_digest)) for shard in SHARDS])
        found = zip(SHARDS, records, strict=True)
        return next(((shard, parse_family(record)) for shard, record in found if record is not None), None)

    async def find_live(self, refresh_token: RefreshToken) -> FamilyRecord | None:
        """Return the family if it is live and the token is its current refresh token, or None.

        A spent generation yields None even within the grace period, which serves retries only. A generation newer than
        the head counts as current: it was issued before Redis lost its last writes, and a refresh continues from it.

        Clauses: RFC 7662 §2.2, §4 (expiry and revocation are looked at)
        """
        family = await self.find(refresh_token.shard, refresh_token.family_digest)
        if family is None or refresh_token.generation < family.head:
            return None
        mark = await self._redis.read("GET", mark_key(refresh_token.shard, family.user_digest))
        is_revoked = family.created_ms <= parse_mark(mark)
        is_over = await self.read_clock_ms() >= family.expires_ms
        return None if is_revoked or is_over else family

    async def read_clock_ms(self) -> int:
        """Return the Redis time in milliseconds, for comparison with the times of a FamilyRecord."""
        return await self._redis.read_clock_ms()

    async def list_of_user(self, identity: UserIdentity, most: int) -> tuple[list[tuple[str, FamilyRecord]], bool]:
        """Return at most `most` live families of the user, by digest, and True if there may be more.

        The families whose entries in the index expire last are chosen. They are sorted by their last use, the latest
        first.
        """
        found, is_cut = await list_records(self._redis, identity, "family", most, parse_family)
        now_ms = await self.read_clock_ms()
        live = [pair for pair in found if now_ms < pair[1].lives_until_ms]
        return sorted(live, key=lambda pair: pair[1].used_ms, reverse=True), is_cut


def read_owner(verdict: Sequence[str | int]) -> User:
    """Return the user of a token or session that has ended. The verdict is a word, scope, user name and subject."""
    _, scope, username, subject = map(str, verdict)
    return User(realm=parse_realm(scope), username=username, id=subject)


def record_displaced(values: Sequence[str | int]) -> None:
    """Record that a new family ended others. Each is five values: digest, client_id, username, subject and scope."""
    for family, client_id, username, sub, scope in zip(*[iter(map(str, values))] * 5, strict=True):
        realm = parse_realm(scope)
        record_event("session_displaced", client_id=client_id, username=username, realm=realm, sub=sub, session=family)
