"""What a browser came for before its user has logged in.

Clauses: SPEC §4.1
"""

from __future__ import annotations

from typing import Final

import msgspec

from service.protocol.authorization import AuthorizationRequest
from service.store.connection import StoreConnection
from service.store.keys import pending_key
from service.store.records import read_json
from service.tokens import RandomToken

PENDING_MS: Final = 1_800_000


class PendingLogin(msgspec.Struct, frozen=True, kw_only=True):
    """`browser_digest` names the browser it is bound to. Without a request the user wants to see their own sessions.

    `afresh`: somebody else than the last user is to log in.
    """

    browser_digest: str
    request: AuthorizationRequest | None
    afresh: bool = False


_read: Final = msgspec.json.Decoder(PendingLogin).decode


class PendingLogins:
    def __init__(self, connection: StoreConnection) -> None:
        self._connection = connection

    async def keep(self, name: RandomToken, login: PendingLogin) -> None:
        key = pending_key(name.shard, name.digest)
        await self._connection.write("SET", key, msgspec.json.encode(login), "PX", PENDING_MS)

    async def find(self, name: RandomToken) -> PendingLogin | None:
        record = await self._connection.read("GET", pending_key(name.shard, name.digest))
        return None if record is None else read_json(_read, record, "a login under way")
