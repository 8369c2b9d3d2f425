"""The revokeAll operation: set a mark that every script of the user's shard checks, then delete in bounded steps.

The mark is a time: every record created at or before it is revoked. The script that sets the mark also moves the user's
index to the key `revoked`, from which the records are deleted. Each step is one script that stops after `MAX_KEYS`
deleted keys and the access tokens of the last family, so that other requests of the shard do not wait long. If a
revokeAll is interrupted, its mark and the key `revoked` stay, and the next call completes it.

Each deletion gets the time of the mark. If a failover has lost that mark, and with it perhaps the key `revoked`, the
script deletes nothing, and the revokeAll begins again.

If the mark lies in the past, or is that of one login at an identity provider, other records survive. The index then
stays, and `revoked` is a copy.

Clauses: SPEC §3, §4.4, §7.5
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from service.redis_client.deadline import StoreUnavailable
from service.redis_client.script import Run
from service.redis_client.slots import SlotIsMoving
from service.store.client import StoreClient
from service.store.families import EndReason, UserEnding
from service.store.keys import index_key, mark_key, revoked_key
from service.store.scripts import load_script

MAX_KEYS: Final = 300
MIN_MARK_LIFETIME_MS: Final = 900_000
"""A mark outlives every login that is under way. At an identity provider, a login takes ten minutes at most."""

USERS_AT_ONCE: Final = 32
MAX_MARKS: Final = 3
"""The number of times that a revokeAll begins. One failover loses one mark, so the third is lost only in a fault."""

_MARK: Final = load_script("mark_revoked")
_DELETE: Final = load_script("delete_revoked")


class _Revocation(NamedTuple):
    """The end of everything of a user, or of one login if `sid` is not empty. `kept_member` is deleted last."""

    shard: str
    subject: str
    sid: str
    until_ms: int
    kept_member: str
    reason: EndReason

    @property
    def keys(self) -> list[str]:
        """The keys of both scripts: the mark, the user's index, and the entries that are set aside."""
        shard, subject = self.shard, self.subject
        return [mark_key(shard, subject, self.sid), index_key(shard, subject), revoked_key(shard, subject)]


class Revocations:
    """The end of everything that a user has. One call of the script deletes at most `max_keys` keys."""

    def __init__(self, redis: StoreClient, *, max_keys: int = MAX_KEYS) -> None:
        self._max_keys = max_keys
        self._redis = redis

    async def revoke_all(
        self,
        shard: str,
        subject: str,
        *,
        until_ms: int = 0,
        kept_family: str = "",
        kept_browser: str = "",
        reason: EndReason = "revoke_all",
    ) -> int:
        """Revoke everything that the user has. Durable on return. Returns the time of the mark.

        With `until_ms`, revoke only what was created at or before that Redis time. A session is as old as its login,
        however often it was refreshed. An earlier revokeAll that was interrupted is completed as well.

        `kept_family` is the digest of the family of the caller's token, `kept_browser` that of the caller's browser
        session. This family or session is deleted last, once the rest is durable, so that a caller that got an error
        can repeat the request.
        """
        kept_member = f"family:{kept_family}" if kept_family else f"browser:{kept_browser}" if kept_browser else ""
        return await self._revoke(_Revocation(shard, subject, "", until_ms, kept_member, reason))

    async def end_provider_login(self, shard: str, subject: str, sid: str) -> None:
        """End what came from one login at an identity provider, or from one without a session id. Durable on return.

        `sid` is the `digest_sid` of that login. Families with their access tokens, codes, consents and browser sessions
        end. A login that is under way starts nothing.

        Clauses: OpenID Connect Back-Channel Logout 1.0 §2.7
        """
        await self._revoke(_Revocation(shard, subject, sid, 0, "", "provider_logout"))

    async def _revoke(self, revocation: _Revocation) -> int:
        for _ in range(MAX_MARKS):
            marked_ms = await self._mark_and_delete(revocation)
            if marked_ms is not None:
                return marked_ms
        raise StoreUnavailable(f"Redis has lost {MAX_MARKS} marks of a revokeAll; which tokens are live is unknown")

    async def _mark_and_delete(self, revocation: _Revocation) -> int | None:
        """Return the time of the mark, or None if Redis has lost the mark, so that something may be live."""
        async with self._redis.durable(revocation.shard) as scripts:
            verdict = "resumed"
            while verdict == "resumed":
                verdict, marked_ms = await self._mark(scripts.run, revocation)
                if not await self._delete(scripts.run, revocation, marked_ms):
                    return None
        if revocation.kept_member:
            async with self._redis.durable(revocation.shard) as scripts:
                is_done = await self._delete(scripts.run, revocation._replace(kept_member=""), marked_ms)
                await scripts.leave_fence()  # confirms the last deletion also if a concurrent call made it
                return marked_ms if is_done else None
        return marked_ms

    async def revoke_all_of(self, users: Iterable[UserEnding], *, until_ms: int = 0) -> list[UserEnding]:
        """Revoke everything of many users, several at once. The first failure stops all.

        If a shard turns out to lie in a moving slot, the remaining users of the shard are not tried. Returns the users
        who keep their sessions for now because their slot is moving.
        """
        waiting = iter(users)
        moving: set[str] = set()
        left: list[UserEnding] = []

        async def work() -> None:
            for user in waiting:
                try:
                    if user.shard not in moving:
                        await self.revoke_all(user.shard, user.subject, until_ms=until_ms, reason=user.reason)
                        continue
                except SlotIsMoving:
                    moving.add(user.shard)
                left.append(user)

        workers = [asyncio.create_task(work()) for _ in range(USERS_AT_ONCE)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return left

    async def revoke_all_left(self, users: Collection[UserEnding], *, until_ms: int = 0) -> None:
        """Revoke everything of users whose slots were moving. Raises SlotIsMoving if a slot is still moving."""
        left = await self.revoke_all_of(users, until_ms=until_ms)
        if left:
            raise SlotIsMoving(f"{len(left)} users keep their sessions, because the slots of their keys are moving")

    async def _mark(self, run: Run, revocation: _Revocation) -> tuple[str, int]:
        """Return the verdict and the time of the mark."""
        _, _, sid, until_ms, kept_member, _ = revocation
        arguments: list[str | int] = [kept_member, until_ms, MIN_MARK_LIFETIME_MS, sid]
        verdict, marked_ms = await run(_MARK, revocation.keys, arguments)
        return str(verdict), int(marked_ms)

    async def _delete(self, run: Run, revocation: _Revocation, marked_ms: int) -> bool:
        """Delete what the mark covers. Returns False if Redis has lost the mark."""
        arguments: list[str | int] = [self._max_keys, revocation.kept_member, marked_ms, revocation.reason]
        verdict = "more"
        while verdict == "more":
            verdict = str((await run(_DELETE, revocation.keys, arguments))[0])
        return verdict == "finished"
