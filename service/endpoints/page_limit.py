"""How many pages one address may open: each is kept in Redis for half an hour, and opening one costs nothing.

Clauses: RFC 6749 §10.10
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from service.audit import record_event
from service.endpoints.addresses import find_address, find_throttle_address
from service.protocol.errors import TemporarilyUnavailable
from service.store.attempts import Attempts, Counter, Exhausted
from service.store.keys import address_key

PAGES_PER_MINUTE: Final = 300


@dataclass(frozen=True, slots=True)
class PageLimit:
    attempts: Attempts

    async def count(self, request: Request) -> None:
        """One more page for this address; raises TemporarilyUnavailable past the limit."""
        counter = Counter(address_key("page", find_throttle_address(request)), PAGES_PER_MINUTE, 60_000)
        try:
            await self.attempts.count([counter])
        except Exhausted as error:
            record_event("pages_throttled", address=find_address(request))
            raise TemporarilyUnavailable("pages_throttled", retry_after_seconds=error.wait_seconds) from None
