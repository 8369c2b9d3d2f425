"""Lookups at a scripted Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.gateway import BearerLookup
from service.redis_client.options import DEFAULT_LIMITS, ConnectionLimits


@asynccontextmanager
async def lookup_at(url: str, *, limits: ConnectionLimits = DEFAULT_LIMITS) -> AsyncIterator[BearerLookup]:
    bearer = BearerLookup(url, limits=limits)
    yield bearer
    await bearer.close()


async def remember(bearer: BearerLookup, *tokens: str) -> None:
    """Look the tokens up twice, since a token is cached from its second use on."""
    assert all([await bearer.lookup(token) for token in tokens * 2])
