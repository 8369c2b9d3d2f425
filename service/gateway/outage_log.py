"""An outage of what the service rests on: the log hears why, the caller when to try again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from ..protocol.errors import TemporarilyUnavailable

QUIET_SECONDS: Final = 1.0


class OutageLog:
    """Thousands of requests a second may meet one outage: it is told at once, then once a second with a count."""

    def __init__(self, log: logging.Logger, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._what = what
        self._clock = clock
        self._quiet_until = 0.0
        self._kept_back = 0
        self._is_told = False

    def count(self) -> None:
        """One more request that was refused because of what is told already."""
        self._kept_back += 1

    def report_recovery(self) -> None:
        """Once, and no oftener than trouble is told."""
        if self._is_told and self._clock() >= self._quiet_until:
            self._log.warning("over: %s (requests refused since this was last told: %d)", self._what, self._kept_back)
            self._is_told, self._kept_back = False, 0

    def tell(self, error: Exception) -> None:
        self.count()
        now = self._clock()
        if now >= self._quiet_until:
            self._log.error(
                "%s: %s (requests refused since this was last told: %d)", self._what, error, self._kept_back
            )
            self._is_told, self._quiet_until, self._kept_back = True, now + QUIET_SECONDS, 0


_report = OutageLog(logging.getLogger("service.store"), "the store is not available")


def report_outage(error: Exception) -> TemporarilyUnavailable:
    """What comes back is what the caller may hear."""
    _report.tell(error)
    return TemporarilyUnavailable("store_unavailable", retry_after_seconds=1)
