"""The rate limit for pages that begin a login, per address.

Clauses: RFC 6749 §10.10
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from service.protocol.errors import TemporarilyUnavailable
from service.store.attempts import Attempts, Exhausted, make_address_counters
from service.web.request.client_address import get_prefixes
from service.web.request.security_events import record_request_event


@dataclass(frozen=True, slots=True)
class PageLimit:
    """A limit for pages. `allowed` is a count for one address, and a window in milliseconds."""

    attempts: Attempts
    allowed: tuple[int, int]

    async def count(self, request: Request) -> None:
        """Count one more page for the caller's address. Raises TemporarilyUnavailable past the limit."""
        counters = make_address_counters("page", get_prefixes(request), self.allowed)
        try:
            await self.attempts.count(counters)
        except Exhausted as error:
            record_request_event(request, "pages_throttled")
            raise TemporarilyUnavailable("pages_throttled", retry_after_seconds=error.wait_seconds) from None
