"""Logins that return from an identity provider. Each may return once.

Clauses: RFC 6749 §10.12, SPEC §2.2
"""

from __future__ import annotations

import hashlib

from service.store.client import StoreClient
from service.store.keys import external_key


class ExternalLogins:
    def __init__(self, redis: StoreClient) -> None:
        self._redis = redis

    async def take(self, state: str, time_left_ms: int) -> bool:
        """Mark the login as used until it expires. Returns True for at most one of all callers with the same state."""
        digest = hashlib.sha256(state.encode()).hexdigest()
        key = external_key(digest[:3], digest[3:35])
        # If Redis hangs, this read fails and nothing is written. A write would run once Redis resumes, and the login
        # would be used up.
        if await self._redis.read("GET", key) is not None:
            return False
        return await self._redis.write("SET", key, 1, "NX", "PX", time_left_ms) is not None
