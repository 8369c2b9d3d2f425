"""A bearer token's grant, from memory where Redis vouches for it, else by one GET.

Clauses: RFC 6749 §7, RFC 6750 §3.1, SPEC §4.5
"""

from __future__ import annotations

import time
from collections.abc import Callable

from service.protocol.bearer import AccessGrant
from service.store.access_tokens import AccessTokens
from service.store.connection import StoreConnection
from service.store.redis_url import RedisUrl, parse_redis_url
from service.tokens import parse_access_token


class BearerLookup:
    """Looks bearer tokens up; make one for each event loop, and share it. It connects by itself at the first lookup.

    `redis_url` takes all forms of the service's REDIS_URL. Without `memory` every lookup asks Redis.
    """

    def __init__(
        self, redis_url: str | RedisUrl, *, memory: bool = True, clock_offset_ms: Callable[[], int] = lambda: 0
    ) -> None:
        url = parse_redis_url(redis_url) if isinstance(redis_url, str) else redis_url
        self._connection = StoreConnection(url, clock_offset_ms=clock_offset_ms)
        self._access_tokens = AccessTokens(self._connection)

    async def lookup(self, token: str) -> AccessGrant | None:
        """None where the token is unknown, expired, revoked or no access token of ours at all.

        Raises StoreUnavailable where that cannot be told: who cannot check must refuse.
        """
        access_token = parse_access_token(token)
        return await self._access_tokens.find(access_token) if access_token else None

    def now_ms(self) -> int:
        """The time by Redis's clock, to hold the times of a grant against."""
        return int(time.time() * 1000)

    async def close(self) -> None:
        await self._connection.close()
