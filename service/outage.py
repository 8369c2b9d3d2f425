"""An outage of the store: the log hears why, the caller when to try again."""

from __future__ import annotations

import logging

from service.protocol.errors import TemporarilyUnavailable

log = logging.getLogger("service.store")


def report_outage(error: Exception) -> TemporarilyUnavailable:
    """What comes back is what the caller may hear."""
    log.error("the store is not available: %s", error)
    return TemporarilyUnavailable("store_unavailable", retry_after_seconds=1)
