"""The readiness check of Redis: it must run our scripts, accept writes and evict nothing."""

from __future__ import annotations

import asyncio
from typing import Final

from service.redis_client.deadline import with_own_budget
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
