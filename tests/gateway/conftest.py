"""What an API has: a lookup of its own on the Redis of the service."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis

from service.gateway import BearerLookup
from tests.conftest import Clock
from tests.servers import RedisServer, free_port


@pytest.fixture
async def lookup(redis_server: RedisServer, clock: Clock) -> AsyncIterator[BearerLookup]:
    lookup = BearerLookup(redis_server.url, clock_offset_ms=lambda: clock.offset_ms)
    yield lookup
    await lookup.close()


@pytest.fixture
async def lookup_without_redis(store: redis.Redis) -> AsyncIterator[BearerLookup]:
    """Nobody listens where this one asks."""
    lookup = BearerLookup(f"redis://127.0.0.1:{free_port()}/0")
    yield lookup
    await lookup.close()
