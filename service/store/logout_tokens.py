"""Logout tokens of identity providers that have done their work. Each counts once.

Clauses: OpenID Connect Back-Channel Logout 1.0 §2.6 (8)
"""

from __future__ import annotations

import hashlib
from typing import Final

from service.protocol.logout_token import MAX_AGE_SECONDS
from service.protocol.user import UserIdentity
from service.store.client import StoreClient
from service.store.keys import logout_key

REMEMBERED_MS: Final = 2 * 1000 * MAX_AGE_SECONDS
"""Longer than a token is accepted, which may be a little from the future at first."""


class LogoutTokens:
    def __init__(self, redis: StoreClient) -> None:
        self._redis = redis

    async def is_used(self, user: UserIdentity, jti: str) -> bool:
        return await self._redis.read("GET", _make_key(user, jti)) is not None

    async def note_use(self, user: UserIdentity, jti: str) -> None:
        """Note that the token's work is done. A token whose work failed may come again."""
        await self._redis.write("SET", _make_key(user, jti), 1, "PX", REMEMBERED_MS)


def _make_key(user: UserIdentity, jti: str) -> str:
    named = f"{user.realm}\n{jti}".encode(errors="surrogatepass")
    return logout_key(user.shard, hashlib.sha256(named).hexdigest()[:32])
