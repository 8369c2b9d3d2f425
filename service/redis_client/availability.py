"""What a task needs that keeps a connection: its availability to readers, and pauses before the next attempt."""

from __future__ import annotations

import asyncio
import random
from typing import Final, Generic, TypeVar

from .deadline import NotSent, StoreUnavailable

FIRST_PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 2.0
"""The longest possible pause is FIRST_PAUSE_SECONDS at first. It doubles with each failure up to MAX_PAUSE_SECONDS."""

Value = TypeVar("Value")


class Availability(Generic[Value]):
    """A value that a background task maintains: available, pending, failed or ended.

    `get` waits while the value is pending.
    """

    def __init__(self) -> None:
        self.value: Value | None = None
        self._failure: str | None = None
        self._end: str | None = None
        self._changed = asyncio.Event()

    def set(self, value: Value) -> None:
        self.value, self._failure = value, None
        self._changed.set()

    def fail(self, failure: str) -> bool:
        """Record a failure: `get` raises StoreUnavailable at once, until the next success.

        The background task goes on trying. Returns False if the attempt before had failed as well.
        """
        is_first_failure = self._failure is None
        self.value, self._failure = None, failure
        self._changed.set()
        return is_first_failure

    def lose(self) -> None:
        """Mark the value as lost. `get` waits for the next attempt; after a failed one it raises at once."""
        self.value, self._failure = None, None
        self._changed.clear()

    def end(self, why: str) -> None:
        """Close permanently. Waiting and later calls of `get` raise NotSent.

        The router may then retry on another node.
        """
        self.value, self._end = None, why
        self._changed.set()

    async def get(self) -> Value:
        """Wait while the value is pending, and return it.

        Raises StoreUnavailable after `fail` and NotSent after `end`.
        """
        while self.value is None:
            if self._end is not None:
                raise NotSent(self._end)
            if self._failure is not None:
                raise StoreUnavailable(self._failure)
            await self._changed.wait()
        return self.value


class Backoff:
    """Pauses chosen at random from 0 to a bound (full jitter).

    The time that an attempt took counts as part of its pause.
    """

    def __init__(self, *, stable_seconds: float) -> None:
        self._stable_seconds = stable_seconds
        self._failures = 0

    def fail(self, took_seconds: float) -> float:
        """Count an attempt that failed after `took_seconds`. Returns the seconds to wait before the next attempt."""
        bound = min(FIRST_PAUSE_SECONDS * 2 ** min(self._failures, 10), MAX_PAUSE_SECONDS)
        self._failures += 1
        return max(0.0, random.uniform(0, bound) - took_seconds)

    def end(self, lasted_seconds: float) -> float:
        """Return the seconds to wait after a connection that lasted for `lasted_seconds`."""
        if lasted_seconds < self._stable_seconds:
            self._failures += 1
            return max(0.0, random.uniform(0, self._stable_seconds) - lasted_seconds)
        self._failures = 0
        return 0.0
