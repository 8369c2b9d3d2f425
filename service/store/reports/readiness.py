"""Checks of Redis: it must run our scripts, accept writes, evict nothing, and have memory left."""

from __future__ import annotations

import asyncio
from math import nan
from typing import Final, NamedTuple

from service.redis_client.deadline import StoreUnavailable, with_own_budget
from service.store.client import StoreClient
from service.store.keys import registry_key
from service.store.scripts import load_script

PROBE_TTL_MS: Final = 10_000

_PROBE: Final = load_script("probe_store")


async def find_obstacle(redis: StoreClient) -> str | None:
    """Return why this Redis cannot serve, as text for people, or None. Raises StoreUnavailable if it does not respond.

    An eviction policy would silently drop sessions and, worse, the marks of a revokeAll.
    """
    _, policies = await asyncio.gather(
        with_own_budget(redis.run(_PROBE, [registry_key("probe")], [PROBE_TTL_MS])),
        with_own_budget(redis.eviction_policies()),
    )
    for policy in policies:
        if policy != "noeviction":
            return f"maxmemory-policy is {policy}; it must be noeviction"
    return None


class Memory(NamedTuple):
    """The memory of a master in bytes, and its limit, which is 0 if there is none."""

    used: float
    limit: float

    @property
    def share(self) -> float:
        return self.used / self.limit if self.limit else 0.0


async def find_fullest_memory(redis: StoreClient) -> Memory:
    """Return the memory of the master that is nearest to its limit, or NaN if this Redis user may not read it."""
    servers = [Memory(server["used_memory"], server["maxmemory"]) for server in await redis.read_info("memory")]
    return max(servers, key=lambda memory: (memory.share, memory.used), default=Memory(nan, nan))


async def find_write_obstacle(redis: StoreClient) -> str | None:
    """Return why Redis refuses an ordinary write, such as a full memory, which the other probe passes, or None."""
    try:
        await redis.write("SET", registry_key("probe"), "1", "PX", PROBE_TTL_MS)
    except StoreUnavailable as refusal:
        return str(refusal)
    return None
