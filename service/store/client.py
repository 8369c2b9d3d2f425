"""The Redis client of the store, set up with the store's scripts, barrier keys and probe keys."""

from __future__ import annotations

from service.gateway.access_record import PROBE_KEYS
from service.redis_client.client import RedisClient
from service.store.keys import fence_key
from service.store.scripts import load_all_scripts


class StoreClient(RedisClient):
    """The Redis client for all commands and scripts of the store. RedisClient documents the parameters."""

    scripts = load_all_scripts()
    barrier_key = staticmethod(fence_key)
    probe_keys = PROBE_KEYS
