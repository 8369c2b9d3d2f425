"""News of the registry, waited for without a clock."""

from __future__ import annotations

import asyncio

from service.store.keys import registry_key
from service.worker import Worker


async def await_invalidations(worker: Worker) -> None:
    """What changed before has left the memory of each service in this process.

    Redis sends the news of a change before it answers the next question, so by then it lies in our sockets.
    """
    await worker.redis.read("EXISTS", registry_key("anything"))
    await asyncio.sleep(0)
