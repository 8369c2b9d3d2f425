"""revokeAll: a mark that every script of the user's shard respects, then deletion in bounded steps.

Each step is one script that stops after deleting `MAX_KEYS` keys (and the last family's access tokens), so that no
other request of the shard waits long. What is cut short is finished by the next call: what was set aside stays set
aside, and the mark holds meanwhile.

The mark may lie in the past: then what is younger survives, and goes back from where it was set aside.

Clauses: SPEC §3, §4.4, §7.5
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Final

from service.redis_client.lock import Run
from service.redis_client.slots import SlotIsMoving
from service.store.client import StoreClient
from service.store.families import EndReason
from service.store.keys import index_key, mark_key, revoked_key
from service.store.scripts import load_script

MAX_KEYS: Final = 300
MIN_MARK_LIFETIME_MS: Final = 60_000
USERS_AT_ONCE: Final = 32

_MARK: Final = load_script("mark_revoked")
_DELETE: Final = load_script("delete_revoked")


class Revocations:
    def __init__(self, redis: StoreClient) -> None:
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
    ) -> None:
        """When this returns, nothing that the user had before is live, and that is durable.

        With `until_ms` only what was made at or before that time by Redis; a session is as old as its login, however
        often it was refreshed since. An earlier revokeAll that was cut short is finished on the way.

        `kept_family` is the digest of the family of the token that asks, `kept_browser` that of the browser session:
        it goes when all else is durable, so that a caller who was answered with an error can ask again.
        """
        kept_member = f"family:{kept_family}" if kept_family else f"browser:{kept_browser}" if kept_browser else ""
        async with self._redis.durable(shard) as scripts:
            verdict = "resumed"
            while verdict == "resumed":
                verdict = await self._mark(scripts.run, shard, subject, until_ms, kept_member)
                await self._delete(scripts.run, shard, subject, until_ms, kept_member, reason)
        if kept_member:
            async with self._redis.durable(shard) as scripts:
                await self._delete(scripts.run, shard, subject, until_ms, "", reason)
                await scripts.leave_fence()  # where another call was quicker, what it deleted is confirmed here, too

    async def revoke_all_of(
        self, subjects: Iterable[tuple[str, str]], *, until_ms: int = 0, reason: EndReason = "revoke_all"
    ) -> list[tuple[str, str]]:
        """The same for many users, each a shard and a subject, several at once; a failure stops all of it.

        Return the users who keep their sessions for now because their slot is moving. Once a shard is known to be in
        such a slot, its other users are not tried.
        """
        waiting = iter(subjects)
        moving: set[str] = set()
        left: list[tuple[str, str]] = []

        async def work() -> None:
            for shard, subject in waiting:
                try:
                    if shard not in moving:
                        await self.revoke_all(shard, subject, until_ms=until_ms, reason=reason)
                        continue
                except SlotIsMoving:
                    moving.add(shard)
                left.append((shard, subject))

        workers = [asyncio.create_task(work()) for _ in range(USERS_AT_ONCE)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return left

    async def revoke_all_left(
        self, subjects: Collection[tuple[str, str]], *, until_ms: int = 0, reason: EndReason = "revoke_all"
    ) -> None:
        """The same for users whose slots were moving. Raises SlotIsMoving where some still are."""
        left = await self.revoke_all_of(subjects, until_ms=until_ms, reason=reason)
        if left:
            raise SlotIsMoving(f"{len(left)} users keep their sessions, because the slots of their keys are moving")

    async def _mark(self, run: Run, shard: str, subject: str, until_ms: int, kept_member: str) -> str:
        keys = [mark_key(shard, subject), index_key(shard, subject), revoked_key(shard, subject)]
        arguments: list[str | int] = [kept_member, until_ms, MIN_MARK_LIFETIME_MS, self._redis.clock_offset_ms()]
        return str((await run(_MARK, keys, arguments))[0])

    async def _delete(
        self, run: Run, shard: str, subject: str, until_ms: int, kept_member: str, reason: EndReason
    ) -> None:
        keys = [revoked_key(shard, subject), mark_key(shard, subject), index_key(shard, subject)]
        arguments: list[str | int] = [MAX_KEYS, kept_member, until_ms, reason, self._redis.clock_offset_ms()]
        verdict = "more"
        while verdict == "more":
            verdict = str((await run(_DELETE, keys, arguments))[0])
