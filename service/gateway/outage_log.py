"""A log that writes an outage at a bounded rate, and the error for the caller, which does not contain the reason."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from ..protocol.errors import TemporarilyUnavailable

QUIET_SECONDS: Final = 1.0


class OutageLog:
    """A log that writes an outage at once, then once a second with the number of refused requests.

    The rate is bounded because thousands of requests a second may meet the same outage.
    """

    def __init__(self, log: logging.Logger, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._what = what
        self._clock = clock
        self._quiet_until = 0.0
        self._suppressed = 0
        self._is_reported = False

    def count(self) -> None:
        """Count a request that was refused during an outage which has already been logged."""
        self._suppressed += 1

    def report_recovery(self) -> None:
        """Log the end of an outage once, and not within a second after the last line about the outage."""
        if self._is_reported and self._clock() >= self._quiet_until:
            self._log.warning("resolved: %s (requests rejected since last report: %d)", self._what, self._suppressed)
            self._is_reported, self._suppressed = False, 0

    def log_error(self, error: Exception) -> None:
        self.count()
        now = self._clock()
        if now >= self._quiet_until:
            self._log.error("%s: %s (requests rejected since the last report: %d)", self._what, error, self._suppressed)
            self._is_reported, self._quiet_until, self._suppressed = True, now + QUIET_SECONDS, 0


_report = OutageLog(logging.getLogger(__package__), "Redis is unavailable")


def report_outage(error: Exception) -> TemporarilyUnavailable:
    """Log the outage. Returns the error for the caller, which does not contain the reason."""
    _report.log_error(error)
    if "OOM " in str(error):
        return TemporarilyUnavailable("store_full", retry_after_seconds=1)
    return TemporarilyUnavailable("store_unavailable", retry_after_seconds=1)
