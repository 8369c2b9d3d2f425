"""Lookups at a scripted Redis."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.gateway import BearerLookup


@asynccontextmanager
async def lookup_at(url: str, **limits: float) -> AsyncIterator[BearerLookup]:
    """`limits` are those of ConnectionOptions."""
    async with BearerLookup(url) as bearer:
        bearer._router.options = bearer._router.options._replace(**limits)  # type: ignore[arg-type]
        yield bearer


async def remember(bearer: BearerLookup, *tokens: str) -> None:
    """Look the tokens up twice, since a token is cached from its second use on."""
    assert all([await bearer.lookup(token) for token in tokens * 2])
