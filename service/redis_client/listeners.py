"""The caches that share the connections of one router, and the invalidations that each of them gets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol


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
