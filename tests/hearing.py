"""News of the registry, waited for without a clock."""

from __future__ import annotations

import asyncio

from service.app import Parts


async def heard(parts: Parts) -> None:
    """What changed before has left the memory of each service in this process.

    Redis sends the news of a change before it answers the next question, so by then it lies in our sockets.
    """
    await parts.connection.read("TIME")
    await asyncio.sleep(0)
