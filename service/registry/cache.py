"""Each worker's memory of the registry, trusted for half a second.

That is short enough that a change is seen everywhere within a second without anybody telling, and long enough that a
busy client costs Redis two reads a second. What cannot be read again is not trusted on: an outage is an error.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

TRUSTED_SECONDS: Final = 0.5
MOST_ENTRIES: Final = 10_000

Record = TypeVar("Record")


class RegistryCache(Generic[Record]):
    """Answers by name from memory or through `find`; a name that is not known is remembered as well."""

    def __init__(self, find: Callable[[str], Awaitable[Record]]) -> None:
        self._find = find
        self._entries: OrderedDict[str, tuple[float, Record]] = OrderedDict()

    async def find(self, name: str) -> Record:
        now = time.monotonic()
        entry = self._entries.get(name)
        if entry is not None and now < entry[0]:
            return entry[1]
        record = await self._find(name)
        # Counted from before the read: what changed since then is seen in time.
        self._entries[name] = (now + TRUSTED_SECONDS, record)
        self._entries.move_to_end(name)
        if len(self._entries) > MOST_ENTRIES:
            self._entries.popitem(last=False)
        return record
