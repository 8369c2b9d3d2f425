"""A bounded cache of answers that Redis invalidates. The gateway's lookups and the registry have such caches."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from .deadline import read_clock

STALE: Final = 0.0
"""The time limit of an entry that may not be used: it was read once, without tracking."""

UNTIL_INVALIDATED: Final = math.inf
"""The time limit of an entry that only an invalidation ends."""

Key = TypeVar("Key")
Value = TypeVar("Value")
Missing = TypeVar("Missing")


class Trust:
    """The time by `read_clock` until which cached answers of one connection may be used. 0: not yet, or no longer.

    The functions in `on_end` are called when the trust ends before its time, while `until` still has its last value.
    """

    __slots__ = ("on_end", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self.on_end: set[Callable[[Trust], None]] = set()

    def end(self) -> None:
        for notify in self.on_end:
            notify(self)
        self.until = 0.0


class TrackedCache(Generic[Key, Value]):
    """An LRU cache of at most `max_entries` entries.

    An entry is fresh until its time limit by `read_clock`, and while the connection that gave it is trusted. An entry
    that is read for the first time is stored as STALE. Its second read is tracked, so that keys of one use cost Redis
    no memory.
    """

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[Key, tuple[float, Trust, Value]] = OrderedDict()

    def get(self, key: Key, missing: Missing) -> Value | Missing:
        """Return the value of a fresh entry, or `missing`."""
        entry = self._entries.get(key)
        if entry is not None:
            until, trust, value = entry
            now = read_clock()
            if now < until and now < trust.until:
                self._entries.move_to_end(key)
                return value
        return missing

    def find_last(self, key: Key) -> Value | None:
        """Return the value of an entry that may be stale, or None if there is no entry."""
        entry = self._entries.get(key)
        return None if entry is None else entry[2]

    def put(self, key: Key, value: Value, until: float, trust: Trust) -> None:
        """Store an entry. The entry that was not used for the longest time makes room."""
        self._entries[key] = until, trust, value
        self._entries.move_to_end(key)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)

    def discard(self, key: Key) -> None:
        self._entries.pop(key, None)

    def clear(self) -> None:
        self._entries.clear()
