"""Watches that a test has made, and the connection that tracks their keys."""

import asyncio

from service.gateway import BearerLookup
from service.gateway.watch import Reason
from service.redis_client.tracked_cache import Trust
from tests.support.waiting import until


async def watch(bearer: BearerLookup, token: str, *, is_checked: bool = True) -> asyncio.Future[Reason]:
    """Look the token up as an API does, and watch it. Returns once Redis tracks its key."""
    if is_checked:
        assert await bearer.lookup(token) is not None
    ended = bearer.watch(token)
    await until(lambda: ended.done() or is_settled(bearer), "the watch")
    return ended


def find_trust(bearer: BearerLookup) -> Trust:
    """Return the trust in its only connection."""
    (master,) = bearer._router.topology.list_known()
    return master.reads.trust


def is_settled(bearer: BearerLookup) -> bool:
    """Return True if Redis tracks the keys of all watches."""
    return all(each.trust is not None for each in bearer._watches._by_key.values())


async def settle(bearer: BearerLookup) -> None:
    await until(lambda: is_settled(bearer), "the watches")
