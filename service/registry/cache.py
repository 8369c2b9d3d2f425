"""Each worker's memory of the registry, trusted for half a second.

That is short enough that a change is seen everywhere within a second without anybody telling, and long enough that a
busy client costs Redis two reads a second. What cannot be read again is not trusted on: an outage is an error.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final, Generic, Protocol, TypeVar

from service.store.connection import within_deadline

TRUSTED_SECONDS: Final = 0.5
MOST_ENTRIES: Final = 10_000

Record = TypeVar("Record")


class Counts(Protocol):
    """Told of each question, and of those that memory had no answer to."""

    def count_lookup(self) -> None: ...

    def count_miss(self) -> None: ...


class RegistryCache(Generic[Record]):
    """Answers by name from memory or through `find`; a name that is not known is remembered as well."""

    def __init__(self, find: Callable[[str], Coroutine[Any, Any, Record]], counts: Counts | None = None) -> None:
        self._find = find
        self._counts = counts
        self._readings: dict[str, asyncio.Task[Record]] = {}
        self._entries: OrderedDict[str, tuple[float, Record]] = OrderedDict()

    async def find(self, name: str) -> Record:
        if self._counts is not None:
            self._counts.count_lookup()
        now = time.monotonic()
        entry = self._entries.get(name)
        if entry is not None and now < entry[0]:
            return entry[1]
        if self._counts is not None:
            self._counts.count_miss()
        # Many may miss at once; one reads for all, and all share what comes of it, an outage too.
        reading = self._readings.get(name) or self._start_reading(name)
        return await within_deadline(asyncio.shield(reading))

    def _start_reading(self, name: str) -> asyncio.Task[Record]:
        # In a context of its own: the budget of the request that happens to come first is not that of the others.
        reading = asyncio.create_task(self._read(name), context=Context())
        self._readings[name] = reading
        reading.add_done_callback(lambda done: self._end_reading(name, done))
        return reading

    def _end_reading(self, name: str, reading: asyncio.Task[Record]) -> None:
        del self._readings[name]
        if not reading.cancelled():
            reading.exception()  # looked at here, in case nobody had the patience to

    async def _read(self, name: str) -> Record:
        # Counted from before the read: what changed since then is seen in time.
        trusted_until = time.monotonic() + TRUSTED_SECONDS
        record = await self._find(name)
        self._entries[name] = (trusted_until, record)
        self._entries.move_to_end(name)
        if len(self._entries) > MOST_ENTRIES:
            self._entries.popitem(last=False)
        return record
