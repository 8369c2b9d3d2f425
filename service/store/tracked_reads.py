"""Reads at the least price, of keys that Redis watches for us: one server, a master named by Sentinels, or a cluster.

What is read may be remembered until Redis says that it changed: reads and invalidations come by one connection, and
`keep` is called at the answer's place in that stream, so nothing old is remembered after the news that it is old.
Nothing is written here, so a read whose connection ended is sent once more.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from redis.exceptions import ResponseError

from service.store.connection import StoreUnavailable, remaining_seconds, translate, within_deadline
from service.store.links import LONGEST_SILENCE_SECONDS, Forget, Link
from service.store.redis_url import RedisUrl
from service.store.topology import TOPOLOGIES, Topology, is_redirection
from service.store.wire import WireLost

MOST_ATTEMPTS: Final = 5

Value = TypeVar("Value")
KeyCommand = tuple[str, str, *tuple[str, ...]]
"""A command that reads one key, which is its second word."""

Keep = Callable[[Link | None, Any], Value]
"""What becomes of the answer that this link gave; without a link it must not be remembered."""


class TrackedReads:
    """Make it in the event loop that uses it. `forget` hears of changes where `is_tracked`."""

    def __init__(self, url: RedisUrl, forget: Forget, *, is_tracked: bool) -> None:
        self._topology: Topology = TOPOLOGIES[url.kind](url, forget, is_tracked)

    async def read(self, command: KeyCommand, keep: Keep[Value], *, is_tracked: bool) -> Value:
        """What `keep` makes of it; raises StoreUnavailable where Redis cannot be asked in time, or cannot serve.

        Only what is tracked may be remembered; it costs Redis memory for as long as the key lives.
        """
        started = time.monotonic()
        link = self._topology.find_now(command[1])
        if link is not None and remaining_seconds() > LONGEST_SILENCE_SECONDS:
            # A time limit for each call would cost more than the call: the link's beat ends what takes too long.
            try:
                return await link.read_now(command, functools.partial(keep, link), is_tracked=is_tracked)
            except WireLost:
                pass
            except ResponseError as error:
                if not is_redirection(error):
                    raise translate(error) from error
        return await within_deadline(self._read(command, keep, is_tracked), started=started)

    def now_ms(self) -> int:
        """The time by Redis's clock; raises StoreUnavailable where it was never heard."""
        for link in self._topology.links():
            if (now_ms := link.now_ms()) is not None:
                return now_ms
        raise StoreUnavailable("Redis has not told the time yet")

    async def close(self) -> None:
        await self._topology.close()

    async def _read(self, command: KeyCommand, keep: Keep[Value], is_tracked: bool) -> Value:
        trouble: Exception | None = None
        for _ in range(MOST_ATTEMPTS):
            link = await self._topology.find(command[1])
            try:
                return await link.read(command, functools.partial(keep, link), is_tracked=is_tracked)
            except WireLost as error:
                trouble = error
            except ResponseError as error:
                if not is_redirection(error):
                    raise
                trouble = error
                asked = await self._topology.follow(str(error), link)
                if asked is not None:
                    return keep(None, await asked.read_asking(command))
        raise StoreUnavailable(f"{MOST_ATTEMPTS} attempts, and none found the node of this key: {trouble}")
