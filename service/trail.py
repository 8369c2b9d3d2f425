"""The way of security events to their stream: taken at once, sent in batches, and bounded whatever happens.

Nothing on the way of a request waits for it or fails with it. Of one name a worker sends so many a minute one by one
and then says how many more there were; what cannot be written is counted and told as soon as it can.

Clauses: SPEC §6, RFC 6819 §5.1.3
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from service.audit import KINDS, Event, Fields, make_event, record_event
from service.metrics import count_events_lost

PAUSE_SECONDS: Final = 1.0
MINUTE_SECONDS: Final = 60.0
MOST_WAITING: Final = 1_000
LAST_SECONDS: Final = 2.0
"""What the end of a worker may still wait for."""


class EventTrail:
    """Holds what is to be written and writes it with `append`, which makes one round trip of any number."""

    def __init__(
        self, append: Callable[[Sequence[bytes]], Awaitable[None]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._append = append
        self._clock = clock
        self._waiting: list[bytes] = []
        self._taken: Counter[Event] = Counter()
        self._minute_ends = 0.0
        self._lost = 0
        self._lost_untold = 0
        self._closing = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None

    def take(self, event: Event, fields: Fields) -> None:
        """Past what a minute may hold it is only counted."""
        if self._clock() >= self._minute_ends:
            self._end_minute()
        self._taken[event] += 1
        if self._taken[event] <= KINDS[event].most_a_minute:
            self._line_up(make_event(event, **fields))

    def start(self) -> None:
        self._sending = asyncio.create_task(self._send_until_closed())

    async def close(self) -> None:
        """Writes what still waits, as far as that goes within a bounded time."""
        self._closing.set()
        if self._sending is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._sending, LAST_SECONDS)
        self._note_lost(len(self._waiting))
        self._tell_lost("the worker ended")

    async def flush(self) -> None:
        """One round trip with all that waits. A batch that was not acknowledged is lost, or perhaps it is not: it is
        not sent twice."""
        if self._closing.is_set() or self._clock() >= self._minute_ends:
            self._end_minute()
        batch, self._waiting = self._waiting, []
        lost = self._lost
        if not (batch or lost):
            return
        reason, is_written = "the worker ended", False
        try:
            await self._append([*batch, make_event("events_lost", count=lost)] if lost else batch)
            reason, is_written = "too many at once", True
        except Exception as error:  # whatever it is, it must not end the sending
            reason = str(error)
        finally:
            self._lost -= lost if is_written else 0
            self._note_lost(0 if is_written else len(batch))
            self._tell_lost(reason)

    async def _send_until_closed(self) -> None:
        is_last = False
        while not is_last:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), PAUSE_SECONDS)
            is_last = self._closing.is_set()
            await self.flush()

    def _line_up(self, entry: bytes) -> None:
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(entry)
        else:
            self._note_lost(1)

    def _end_minute(self) -> None:
        """Says how many there were that it does not have one by one."""
        for event, taken in self._taken.items():
            left_out = taken - KINDS[event].most_a_minute
            if left_out > 0:
                self._line_up(make_event(event, count=left_out))
        self._taken.clear()
        self._minute_ends = self._clock() + MINUTE_SECONDS

    def _note_lost(self, count: int) -> None:
        count_events_lost(count)
        self._lost += count
        self._lost_untold += count

    def _tell_lost(self, reason: str) -> None:
        if self._lost_untold:
            record_event("events_lost", count=self._lost_untold, reason=reason)
            self._lost_untold = 0
