"""Checks of Redis: it must run our scripts, accept writes, evict nothing, and have memory left."""

from __future__ import annotations

import asyncio
from math import inf, nan
from typing import Final

from service.redis_client.deadline import StoreUnavailable, with_own_budget
from service.store.client import StoreClient, load_script
from service.store.keys import registry_key

PROBE_TTL_MS: Final = 10_000

_PROBE: Final = load_script("reports/probe_store")


async def find_obstacle(redis: StoreClient) -> str | None:
    """Return why this Redis cannot serve, as text for people, or None. Raises StoreUnavailable if it does not respond.

    An eviction policy would silently drop sessions and, worse, the marks of a revokeAll.
    """
    _, policies = await asyncio.gather(
        with_own_budget(redis.run(_PROBE, probe_key=registry_key("probe"), ttl_ms=PROBE_TTL_MS)),
        with_own_budget(redis.eviction_policies()),
    )
    for policy in policies:
        if policy != "noeviction":
            return f"maxmemory-policy is {policy}; it must be noeviction"
    return None


async def read_fullest_memory(redis: StoreClient) -> tuple[float, float]:
    """Return the bytes that the master nearest to its limit uses, and the limit. NaN: this Redis user may not read it.

    A limit of 0 is none.
    """
    servers = [(server["used_memory"], server["maxmemory"]) for server in await redis.read_info("memory")]
    return max(servers, key=lambda server: server[0] / (server[1] or inf), default=(nan, nan))


async def find_write_obstacle(redis: StoreClient) -> str | None:
    """Return why Redis refuses an ordinary write, such as a full memory, which the other probe passes, or None."""
    try:
        await redis.write("SET", registry_key("probe"), "1", "PX", PROBE_TTL_MS)
    except StoreUnavailable as refusal:
        return str(refusal)
    return None
