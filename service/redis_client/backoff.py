"""Random pauses between attempts to connect, so that many workers do not return to a server together."""

from __future__ import annotations

import random
from typing import Final

FIRST_PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 2.0
"""The longest possible pause is FIRST_PAUSE_SECONDS at first. It doubles with each failure up to MAX_PAUSE_SECONDS."""

STABLE_SECONDS: Final = 1.0
"""A connection that lasted this long is followed by no pause. The pause after a shorter one ends within this time."""


class Backoff:
    """Pauses chosen at random from 0 to a bound (full jitter).

    The time that an attempt took counts as part of its pause.
    """

    def __init__(self, *, stable_seconds: float = STABLE_SECONDS) -> None:
        self._stable_seconds = stable_seconds
        self.failures = 0

    def fail(self, took_seconds: float) -> float:
        """Count an attempt that failed after `took_seconds`. Returns the seconds to wait before the next attempt."""
        bound = min(FIRST_PAUSE_SECONDS * 2 ** min(self.failures, 10), MAX_PAUSE_SECONDS)
        self.failures += 1
        return max(0.0, random.uniform(0, bound) - took_seconds)

    def end(self, lasted_seconds: float) -> float:
        """Return the seconds to wait after a connection that lasted for `lasted_seconds`."""
        if lasted_seconds < self._stable_seconds:
            self.failures += 1
            return max(0.0, random.uniform(0, self._stable_seconds) - lasted_seconds)
        self.failures = 0
        return 0.0
