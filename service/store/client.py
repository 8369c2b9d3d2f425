"""The Redis client of the store, set up with the store's scripts, barrier keys and probe keys."""

from __future__ import annotations

from collections.abc import Callable

from service.gateway.access_record import PROBE_KEYS
from service.redis_client.client import RedisClient
from service.redis_client.deadline import CallObserver, ignore_call
from service.redis_client.durability import Durability
from service.redis_client.options import DEFAULT_LIMITS, ConnectionLimits
from service.redis_client.url import RedisUrl
from service.store.keys import fence_key
from service.store.scripts import load_all_scripts


class StoreClient(RedisClient):
    """The Redis client for all commands and scripts of the store. RedisClient documents the parameters."""

    def __init__(
        self,
        url: RedisUrl,
        *,
        durability: Durability = "memory",
        clock_offset_ms: Callable[[], int] = lambda: 0,
        watch: CallObserver = ignore_call,
        on_moving_slot: Callable[[], None] = lambda: None,
        limits: ConnectionLimits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(
            url,
            scripts=load_all_scripts(),
            barrier_key=fence_key,
            probe_keys=PROBE_KEYS,
            durability=durability,
            clock_offset_ms=clock_offset_ms,
            watch=watch,
            on_moving_slot=on_moving_slot,
            limits=limits,
        )
