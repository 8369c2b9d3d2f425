"""Logins at an organisation that browsers have set out for: each may come back once, in the same browser.

Clauses: RFC 6749 §10.12, SPEC §2.2
"""

from __future__ import annotations

from typing import Final

import msgspec

from service.protocol.authorization import AuthorizationRequest
from service.store.connection import StoreConnection
from service.store.keys import external_key
from service.store.pending_logins import PENDING_MS
from service.store.records import read_json
from service.tokens import RandomToken


class ExternalLogin(msgspec.Struct, frozen=True, kw_only=True):
    """`browser_digest` names the browser that set out, `organisation` (its fingerprint) where to.

    Without a request the user wants to see their own sessions.
    """

    browser_digest: str
    realm: str
    organisation: str
    request: AuthorizationRequest | None


_read: Final = msgspec.json.Decoder(ExternalLogin).decode


class ExternalLogins:
    def __init__(self, connection: StoreConnection) -> None:
        self._connection = connection

    async def keep(self, name: RandomToken, login: ExternalLogin) -> None:
        key = external_key(name.shard, name.digest)
        await self._connection.write("SET", key, msgspec.json.encode(login), "PX", PENDING_MS)

    async def find(self, name: RandomToken) -> ExternalLogin | None:
        record = await self._connection.read("GET", external_key(name.shard, name.digest))
        return None if record is None else read_json(_read, record, "a login under way")

    async def take(self, name: RandomToken) -> bool:
        """Whether it was still there: of many who come back with the same name one gets it."""
        deleted: int = await self._connection.write("DEL", external_key(name.shard, name.digest))
        return deleted == 1
