"""The revokeAll operation: set a mark that scripts check before they start something, and delete in bounded steps.

The mark is a time: every record created at or before it is revoked. The step that sets the mark moves the user's index
to the key `revoked`, from which the records are deleted. Each step is one script that stops after `MAX_KEYS` deleted
keys and the access tokens of the last family, so that other requests of the shard do not wait long. If a revokeAll is
interrupted, its mark and the key `revoked` stay, and the next call completes it.

One step serves several users of one shard, since most users have few keys.

Each later step gets the time of the mark. If a failover has lost that mark, and with it perhaps the key `revoked`, the
script deletes nothing, and the revokeAll begins again.

A record of a session that cannot be read, for example because a newer version wrote it, stays in `revoked`. Everything
else of the user is deleted, and the call raises StoreUnavailable. The next call tries the record again.

If the mark lies in the past, or is that of one login at an identity provider, other records survive. The index then
stays, and `revoked` is a copy.

Clauses: SPEC §3, §4.4, §7.5
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from service.redis_client.client import DurableScripts
from service.redis_client.deadline import StoreUnavailable, UnreadableRecord
from service.redis_client.slots import SlotIsMoving
from service.store.client import StoreClient, load_script
from service.store.keys import index_key, mark_key, revoked_key
from service.store.sessions.families import EndReason, UserEnding

MAX_KEYS: Final = 300
MIN_MARK_LIFETIME_MS: Final = 900_000
"""A mark outlives every login that is under way. At an identity provider, a login takes ten minutes at most."""

USERS_AT_ONCE: Final = 16
"""The number of users of one shard that one step serves."""

STEPS_AT_ONCE: Final = 32
MAX_MARKS: Final = 3
"""The number of times that a revokeAll may begin. One failover loses one mark, so the third is lost only in a fault."""

_REVOKE_ALL: Final = load_script("sessions/revoke_all")


class _Revocation(NamedTuple):
    """The end of everything of users, or of one login if `sid` is not empty. `kept_member` is deleted last."""

    shard: str
    digests: Collection[str]
    sid: str
    until_ms: int
    kept_member: str
    reason: EndReason

    def list_keys(self, digests: Iterable[str]) -> list[str]:
        """Return for each user the keys of the mark, of the index, and of the entries that are set aside."""
        return [
            key
            for digest in digests
            for key in (
                mark_key(self.shard, digest, self.sid),
                index_key(self.shard, digest),
                revoked_key(self.shard, digest),
            )
        ]


class Revoked(NamedTuple):
    """The time of a user's mark, and whether something of the user was alive, now or before an earlier mark."""

    marked_ms: int
    was_alive: bool


class Revocations:
    """The end of everything that users have. One call of the script stops once it has deleted `max_keys` keys."""

    def __init__(self, redis: StoreClient, *, max_keys: int = MAX_KEYS) -> None:
        self._max_keys = max_keys
        self._redis = redis

    async def revoke_all(
        self,
        shard: str,
        digest: str,
        *,
        until_ms: int = 0,
        kept_family: str = "",
        kept_browser: str = "",
        reason: EndReason = "revoke_all",
    ) -> Revoked:
        """Revoke everything that the user has. Durable on return.

        With `until_ms`, revoke only what was created at or before that Redis time. A session is as old as its login,
        however often it was refreshed. An earlier revokeAll that was interrupted is completed as well.

        `kept_family` is the digest of the family of the caller's token, `kept_browser` that of the caller's browser
        session. This family or session is deleted last, once the rest is durable, so that a caller that got an error
        can repeat the request.
        """
        kept_member = f"family:{kept_family}" if kept_family else f"browser:{kept_browser}" if kept_browser else ""
        return await self._revoke_of_one(_Revocation(shard, [digest], "", until_ms, kept_member, reason))

    async def end_provider_login(self, shard: str, digest: str, sid: str) -> Revoked:
        """End what came from one login at an identity provider, or from one without a session id. Durable on return.

        `sid` is the `digest_sid` of that login. Families with their access tokens, codes, consents and browser sessions
        end. A login that is under way starts nothing.

        Clauses: OpenID Connect Back-Channel Logout 1.0 §2.7
        """
        return await self._revoke_of_one(_Revocation(shard, [digest], sid, 0, "", "provider_logout"))

    async def revoke_all_of(
        self,
        users: Iterable[UserEnding],
        *,
        until_ms: int = 0,
        after_users: Callable[[int], object] = lambda _: None,
    ) -> list[UserEnding]:
        """Revoke everything of many users, several at once. An outage stops all.

        `after_users` is called after each step with the number of users that it finished. If a shard turns out to lie
        in a moving slot, the remaining users of the shard are not tried. Returns the users who keep something for now:
        all of it because their slot is moving, or only what cannot be read.
        """
        digests = defaultdict[tuple[str, EndReason], list[str]](list)
        for user in users:
            digests[user.shard, user.reason].append(user.digest)
        waiting = [
            (shard, reason, some[start : start + USERS_AT_ONCE])
            for (shard, reason), some in digests.items()
            for start in range(0, len(some), USERS_AT_ONCE)
        ]
        moving: set[str] = set()
        left: list[UserEnding] = []

        async def work() -> None:
            while waiting:
                shard, reason, some = waiting.pop()
                done: Collection[str] = ()
                try:
                    if shard not in moving:
                        done = await self._revoke(_Revocation(shard, some, "", until_ms, "", reason))
                        after_users(len(done))
                except SlotIsMoving:
                    moving.add(shard)
                except UnreadableRecord:
                    if len(some) > 1:  # which of them has it is not known
                        waiting.extend((shard, reason, [each]) for each in some)
                        continue
                left.extend(UserEnding(shard, digest, reason) for digest in some if digest not in done)

        workers = [asyncio.create_task(work()) for _ in range(STEPS_AT_ONCE)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return left

    async def revoke_all_left(self, users: Collection[UserEnding], *, until_ms: int = 0) -> None:
        """Revoke everything of users whom `revoke_all_of` returned. Raises StoreUnavailable if a user is left again."""
        left = await self.revoke_all_of(users, until_ms=until_ms)
        if left:
            raise StoreUnavailable(
                f"{len(left)} users keep sessions, because their cluster slots are moving or records cannot be read"
            )

    async def _revoke_of_one(self, revocation: _Revocation) -> Revoked:
        for revoked in (await self._revoke(revocation)).values():
            return revoked
        raise UnreadableRecord("the record of a session cannot be read; everything else of the user was revoked")

    async def _revoke(self, revocation: _Revocation) -> Mapping[str, Revoked]:
        """Return the users of whom nothing is left, by digest. Others have records that cannot be read."""
        for _ in range(MAX_MARKS):
            finished = await self._mark_and_delete(revocation)
            if finished is not None:
                return finished
        raise StoreUnavailable(f"Redis lost a revocation marker {MAX_MARKS} times; some tokens may still be valid")

    async def _mark_and_delete(self, revocation: _Revocation) -> Mapping[str, Revoked] | None:
        """Return what `_revoke` returns, or None if Redis has lost a mark, so that something may be live."""
        async with self._redis.durable(revocation.shard) as scripts:
            finished = await self._run_steps(scripts, revocation, dict.fromkeys(revocation.digests, 0))
        if finished and revocation.kept_member:
            marks = {digest: revoked.marked_ms for digest, revoked in finished.items()}
            async with self._redis.durable(revocation.shard) as scripts:
                finished = await self._run_steps(scripts, revocation._replace(kept_member=""), marks)
        return finished

    async def _run_steps(
        self, scripts: DurableScripts, revocation: _Revocation, marks: Mapping[str, int]
    ) -> Mapping[str, Revoked] | None:
        """Delete what the marks cover. A user whose mark is 0 is marked first. Returns what `_mark_and_delete` does."""
        _, _, sid, until_ms, kept_member, reason = revocation
        finished: dict[str, Revoked] = {}
        given = marks
        while marks:
            given = marks
            answer = await scripts.run(
                _REVOKE_ALL,
                user_keys=revocation.list_keys(given),
                most_keys=self._max_keys,
                kept_member=kept_member,
                until_ms=until_ms,
                least_lifetime_ms=MIN_MARK_LIFETIME_MS,
                sid=sid,
                reason=reason,
                marks=list(given.values()),
            )
            if answer == ["lost"]:
                return None
            after = list(zip(given, answer[::2], map(int, answer[1::2]), strict=True))
            for digest, verdict, marked_ms in after:
                if verdict in ("finished", "nothing"):
                    finished[digest] = Revoked(marked_ms, verdict == "finished")
            marks = {digest: marked_ms for digest, verdict, marked_ms in after if verdict == "more"}
        if any(given.values()):
            # The last step set no mark, so a concurrent call may have made the last deletion. The fence confirms it.
            await scripts.leave_fence()
        return finished
