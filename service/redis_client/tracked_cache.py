"""A bounded cache of answers that Redis invalidates, and the invalidations that each cache gets.

The gateway's lookups and the registry have a cache each, and share the connections of one router.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Final, Generic, Protocol, TypeVar

from .deadline import read_clock

STALE: Final = 0.0
"""The time limit of an entry that may not be used: it was read once, without tracking."""

UNTIL_INVALIDATED: Final = math.inf
"""The time limit of an entry that only an invalidation ends."""

Key = TypeVar("Key")
Value = TypeVar("Value")
Missing = TypeVar("Missing")


class Trust:
    """The time by `read_clock` until which cached answers of one connection may be used. 0: not yet, or no longer."""

    __slots__ = ("until",)

    def __init__(self) -> None:
        self.until = 0.0


class TrackedCache(Generic[Key, Value]):
    """The entries that were used last, at most `max_entries`.

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

    def discard_if(self, is_outdated: Callable[[Key, Value], bool]) -> None:
        """Remove every entry for whose key and value the function returns True."""
        for key in [key for key, (_, _, value) in self._entries.items() if is_outdated(key, value)]:
            del self._entries[key]

    def clear(self) -> None:
        self._entries.clear()


class InvalidationListener(Protocol):
    """A cache of answers that gets the invalidations."""

    def invalidate(self, keys: Sequence[bytes] | None) -> None:
        """Forget keys that changed. None means that any key may have changed."""

    def invalidate_slots(self, slots: Collection[int]) -> None:
        """Forget the keys of hash slots whose owner changed."""


class ListenersByKind:
    """The listeners, each for one kind of key. The kind is the part of a key before its first colon."""

    def __init__(self) -> None:
        self._listeners: dict[bytes, InvalidationListener] = {}

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, kind: str, listener: InvalidationListener) -> None:
        """Let the listener get the invalidations of this kind of key. Each kind may have one listener."""
        assert kind.encode() not in self._listeners, kind
        self._listeners[kind.encode()] = listener

    def invalidate(self, keys: Sequence[bytes] | None) -> None:
        """Pass each key on to the listener of its kind, or None to every listener."""
        if keys is None:
            for listener in self._listeners.values():
                listener.invalidate(None)
            return
        for key in keys:
            listener_of_kind = self._listeners.get(key.partition(b":")[0])
            if listener_of_kind is not None:
                listener_of_kind.invalidate((key,))

    def invalidate_slots(self, slots: Collection[int]) -> None:
        for listener in self._listeners.values():
            listener.invalidate_slots(slots)
