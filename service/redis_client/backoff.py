"""Pauses between attempts to connect that differ, so that many workers do not return to a server together."""

from __future__ import annotations

import random
from typing import Final

FIRST_PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 2.0
"""The bounds of the pauses after attempts that failed. They double from the one to the other."""

STABLE_SECONDS: Final = 1.0
"""After a connection that lasted as long there is no pause. The pause after a shorter one ends within this time."""


class Backoff:
    """Chooses each pause by chance, from 0 to a bound (full jitter). What an attempt took is a part of its pause."""

    def __init__(self) -> None:
        self.failures = 0

    def fail(self, took_seconds: float) -> float:
        """Count an attempt that failed after these seconds. Returns the seconds to wait before the next one."""
        bound = min(FIRST_PAUSE_SECONDS * 2 ** min(self.failures, 10), MAX_PAUSE_SECONDS)
        self.failures += 1
        return max(0.0, random.uniform(0, bound) - took_seconds)

    def end(self, lasted_seconds: float) -> float:
        """Return the seconds to wait after a connection that lasted for these seconds."""
        if lasted_seconds < STABLE_SECONDS:
            self.failures += 1
            return max(0.0, random.uniform(0, STABLE_SECONDS) - lasted_seconds)
        self.failures = 0
        return 0.0
