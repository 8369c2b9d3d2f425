"""A listener to invalidations that notes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence


class Memory:
    """The keys that a connection invalidates."""

    def __init__(self) -> None:
        self.told: list[Sequence[bytes] | None] = []

    def invalidate(self, keys: Sequence[bytes] | None) -> None:
        self.told.append(keys)

    def invalidate_slots(self, slots: Collection[int]) -> None:
        raise AssertionError("a link knows no slots")
