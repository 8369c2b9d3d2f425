"""revokeAll: a mark that every script of the user's shard respects, then deletion in bounded steps.

Each step is one script that stops after `MOST_KEYS` keys (and the last family's access tokens), so that no other
request of the shard waits long. What is cut short is finished by the next call: what was set aside stays set aside, and
the mark holds meanwhile.

Clauses: SPEC §3, §4.4, §7.5
"""

from __future__ import annotations

from typing import Final

from service.store.connection import StoreConnection
from service.store.keys import index_key, mark_key, revoked_key
from service.store.scripts import load_script

MOST_KEYS: Final = 300
LEAST_MARK_LIFETIME_MS: Final = 60_000

_MARK: Final = load_script("mark_revoked")
_DELETE: Final = load_script("delete_revoked")


class Revocations:
    def __init__(self, connection: StoreConnection) -> None:
        self._connection = connection

    async def revoke_all(self, shard: str, subject: str, *, kept_family: str = "", kept_browser: str = "") -> None:
        """When this returns, nothing that the user had before is live.

        `kept_family` is the digest of the family of the token that asks, `kept_browser` that of the browser session:
        it goes last, so that a caller who was answered with an error can ask again.
        """
        kept_member = f"family:{kept_family}" if kept_family else f"browser:{kept_browser}" if kept_browser else ""
        verdict = "resumed"
        while verdict == "resumed":
            verdict = await self._mark(shard, subject, kept_member)
            await self._delete(shard, subject, kept_member)
        if kept_member:
            await self._delete(shard, subject, "")

    async def _mark(self, shard: str, subject: str, kept_member: str) -> str:
        keys = [mark_key(shard, subject), index_key(shard, subject), revoked_key(shard, subject)]
        arguments: list[str | int] = [kept_member, LEAST_MARK_LIFETIME_MS, self._connection.clock_offset_ms()]
        return str((await self._connection.run(_MARK, keys, arguments))[0])

    async def _delete(self, shard: str, subject: str, kept_member: str) -> None:
        verdict = "more"
        while verdict == "more":
            answer = await self._connection.run(_DELETE, [revoked_key(shard, subject)], [MOST_KEYS, kept_member])
            verdict = str(answer[0])
