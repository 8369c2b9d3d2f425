"""A check for long work: whether Redis may have lost writes since the work began."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from service.redis_client.deadline import StoreUnavailable
from service.store.client import StoreClient


async def watch_masters(redis: StoreClient) -> Callable[[], Awaitable[None]]:
    """Return a function that raises StoreUnavailable if a master was replaced or restarted since this call.

    Redis gives each history of writes an id. A promoted replica and a restarted server begin another history, which may
    lack the last writes. If this Redis user may not call INFO, the function finds nothing.
    """
    histories = await _list_histories(redis)

    async def check() -> None:
        if await _list_histories(redis) != histories:
            raise StoreUnavailable("a master was replaced or restarted meanwhile, so changes may be lost; repeat this")

    return check


async def _list_histories(redis: StoreClient) -> set[tuple[str, str]]:
    return {(each["role"], each["master_replid"]) for each in await redis.read_info("replication")}
