"""Waits for the invalidations that Redis pushes, without a clock."""

import asyncio

from service.store.keys import registry_key
from service.worker import Worker


async def await_invalidations(worker: Worker) -> None:
    """Wait until earlier changes have left the cache of each service in this process.

    Redis pushes the invalidations of a change before it answers the next command. They are then in our sockets.
    """
    await worker.redis.read("EXISTS", registry_key("anything"))
    await asyncio.sleep(0)
