"""Values from identity providers that count once: the state of a returning login, and the id of a logout token.

Clauses: RFC 6749 §10.12, OpenID Connect Back-Channel Logout 1.0 §2.6 (8), SPEC §2.2
"""

from __future__ import annotations

import hashlib
from typing import Final

from service.protocol.logout_token import MAX_AGE_SECONDS
from service.protocol.user import UserIdentity
from service.store.client import StoreClient
from service.store.keys import make_key

REMEMBERED_MS: Final = 2 * 1000 * MAX_AGE_SECONDS
"""Longer than a logout token is accepted, which may be a little from the future at first."""


class SingleUse:
    """Values that count once, each under a key of its own."""

    def __init__(self, redis: StoreClient) -> None:
        self._redis = redis

    async def take(self, key: str, lifetime_ms: int) -> bool:
        """Mark the value as used. Returns True for at most one of all callers with the same key."""
        # If Redis hangs, this read fails and nothing is written. A write would run once Redis resumes, and the value
        # would be used up.
        return not await self.is_used(key) and await self.note(key, lifetime_ms)

    async def is_used(self, key: str) -> bool:
        return await self._redis.read("GET", key) is not None

    async def note(self, key: str, lifetime_ms: int = REMEMBERED_MS) -> bool:
        """Mark the value as used for this time. Returns False if it is marked already."""
        return await self._redis.write("SET", key, 1, "NX", "PX", lifetime_ms) is not None


def make_state_key(state: str) -> str:
    digest = hashlib.sha256(state.encode()).hexdigest()
    return make_key("external", digest[:3], digest[3:35])


def make_token_key(user: UserIdentity, jti: str) -> str:
    named = f"{user.realm}\n{jti}".encode(errors="surrogatepass")
    return make_key("logout", user.shard, hashlib.sha256(named).hexdigest()[:32])
