"""Whether this Redis can serve: it runs our scripts, takes writes, and evicts nothing."""

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
    """Return what keeps this Redis from serving, in plain words, or None. Raises StoreUnavailable without an answer.

    A policy that evicts would silently drop sessions and, worse, marks of revocation.
    """
    _, policies = await asyncio.gather(
        with_own_budget(redis.run(_PROBE, [registry_key("probe")], [PROBE_TTL_MS])),
        with_own_budget(redis.eviction_policies()),
    )
    for policy in policies:
        if policy != "noeviction":
            return f"maxmemory-policy is {policy}; it must be noeviction"
    return None
