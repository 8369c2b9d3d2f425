"""How many sessions and access tokens there are: counted where there are few keys, else estimated from a sample.

Redis knows how many keys it holds, and not of which kinds. To look at all of them would take it longer the more there
are; a thousand at random tell the shares well enough, and cost it about a millisecond.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from service.redis_client.connection import Command
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.managed_connection import Link
from service.store.client import StoreClient
from service.store.keys import find_kind

COUNTED_KEYS: Final = 5_000
"""Up to so many keys are looked at one by one."""

SAMPLED_KEYS: Final = 1_000
"""The estimate of what is a third of all keys is then wrong by 5 % usually, and hardly ever by 15 %."""

_AT_ONCE: Final = 200
"""So that to read the answers does not hold up requests for long."""


class CensusForbidden(Exception):
    """This Redis user may not ask for what a census needs."""


class Census(NamedTuple):
    sessions: float
    access_tokens: float


async def take_census(connection: StoreClient) -> Census:
    """Raises StoreUnavailable in an outage, CensusForbidden where that would never work."""
    try:
        masters = [(master, await connection.count_keys(master)) for master in await connection.find_masters()]
        if sum(size for _, size in masters) <= COUNTED_KEYS:
            return await _count(connection)
        return await _estimate(connection, masters)
    except StoreUnavailable as error:
        if "NOPERM" in str(error):
            raise CensusForbidden(str(error)) from error
        raise


async def _count(connection: StoreClient) -> Census:
    keys = {key async for batch in connection.scan("*") for key in batch}
    kinds = Counter(find_kind(key) for key in keys)
    return Census(kinds["family"], kinds["access"])


async def _estimate(connection: StoreClient, masters: list[tuple[Link, int]]) -> Census:
    """Each master by itself: it knows its own number of keys, and they need not be spread evenly."""
    sessions = access_tokens = 0.0
    for master, size in masters:
        kinds = await _sample(connection, master, SAMPLED_KEYS // len(masters))
        sessions += size * kinds["family"] / kinds.total()
        access_tokens += size * kinds["access"] / kinds.total()
    return Census(sessions, access_tokens)


async def _sample(connection: StoreClient, master: Link, wanted: int) -> Counter[str]:
    kinds = Counter[str]()
    commands: list[Command] = [("RANDOMKEY",)] * _AT_ONCE
    while kinds.total() < wanted:
        keys = await connection.read_many(commands, master)
        kinds.update("" if key is None else find_kind(key.decode()) for key in keys)
    return kinds
