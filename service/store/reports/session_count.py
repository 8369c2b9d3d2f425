"""How many sessions and access tokens there are: counted where there are few keys, else estimated from a sample.

Redis knows how many keys it holds, and not of which kinds. To look at all of them would take it longer the more there
are; a thousand at random tell the shares well enough, and cost it about a millisecond.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from service.redis_client.connection import Command
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.managed_connection import ManagedConnection
from service.store.client import StoreClient
from service.store.keys import get_kind

COUNTED_KEYS: Final = 5_000
"""Up to so many keys are looked at one by one."""

SAMPLED_KEYS: Final = 1_000
"""The estimate of what is a third of all keys is then wrong by 5 % usually, and hardly ever by 15 %."""

_AT_ONCE: Final = 200
"""So that to read the answers does not hold up requests for long."""


class CountingForbidden(Exception):
    """This Redis user may not ask for what a census needs."""


class SessionCount(NamedTuple):
    sessions: float
    access_tokens: float


async def estimate_session_count(redis: StoreClient) -> SessionCount:
    """Raises StoreUnavailable in an outage, CountingForbidden where that would never work."""
    try:
        masters = [(master, await redis.count_keys(master)) for master in await redis.list_masters()]
        if sum(size for _, size in masters) <= COUNTED_KEYS:
            return await _count(redis)
        return await _estimate(redis, masters)
    except StoreUnavailable as error:
        if "NOPERM" in str(error):
            raise CountingForbidden(str(error)) from error
        raise


async def _count(redis: StoreClient) -> SessionCount:
    keys = {key async for batch in redis.scan("*") for key in batch}
    kinds = Counter(get_kind(key) for key in keys)
    return SessionCount(kinds["family"], kinds["access"])


async def _estimate(redis: StoreClient, masters: list[tuple[ManagedConnection, int]]) -> SessionCount:
    """Each master by itself: it knows its own number of keys, and they need not be spread evenly."""
    sessions = access_tokens = 0.0
    for master, size in masters:
        kinds = await _sample(redis, master, SAMPLED_KEYS // len(masters))
        sessions += size * kinds["family"] / kinds.total()
        access_tokens += size * kinds["access"] / kinds.total()
    return SessionCount(sessions, access_tokens)


async def _sample(redis: StoreClient, master: ManagedConnection, wanted: int) -> Counter[str]:
    kinds = Counter[str]()
    commands: list[Command] = [("RANDOMKEY",)] * _AT_ONCE
    while kinds.total() < wanted:
        keys = await redis.read_many(commands, master)
        kinds.update("" if key is None else get_kind(key.decode()) for key in keys)
    return kinds
