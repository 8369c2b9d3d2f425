"""The Redis client of the store, set up with the store's fence key and probe keys."""

from __future__ import annotations

from service.gateway.access_record import PROBE_KEYS
from service.redis_client.client import RedisClient
from service.store.keys import fence_key


class StoreClient(RedisClient):
    """The Redis client for all commands and scripts of the store. RedisClient documents the parameters."""

    fence_key = staticmethod(fence_key)
    probe_keys = PROBE_KEYS
