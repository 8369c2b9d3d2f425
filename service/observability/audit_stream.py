"""The path of security events to their stream in Redis: buffered at once, sent in batches, always bounded.

No request waits for the stream or fails with it. A worker sends a limited number of events of each name one by one in a
minute, and the first event of each user or client. The others are sent as a count. Events that cannot be written are
counted, and their number is recorded as soon as possible. Events that name a known user or an actor are kept apart from
events that strangers can cause: each group has its own limits, buffer and stream.

Clauses: SPEC §6, RFC 6819 §5.1.3
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from service.observability.audit import Fields, make_event, record_event

RETRY_DELAY_SECONDS: Final = 1.0
MINUTE_SECONDS: Final = 60.0
MAX_A_MINUTE: Final = 10
"""The events of one name that go to one stream in a minute, before only the first of each user or client does."""
MAX_WAITING: Final = 1_000
"""The most events that wait for one stream."""
MAX_NAMED: Final = 600
"""The number of users or clients, for each stream and minute, whose first event of a name is always taken."""
LAST_SECONDS: Final = 2.0
"""The time that the end of a worker waits for the last batch."""


class AuditStream:
    """A buffer of events that are written with `append`, in one round trip for each batch.

    `on_lost` is called with the number of events that cannot be written.
    """

    def __init__(
        self,
        append: Callable[[Sequence[bytes], Sequence[bytes]], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
        *,
        on_lost: Callable[[int], object] = lambda count: None,
    ) -> None:
        self._append = append
        self._on_lost = on_lost
        self._clock = clock
        self._of_users = _StreamBuffer(self._note_lost)
        self._of_strangers = _StreamBuffer(self._note_lost)
        self._minute_ends = 0.0
        self._lost = 0
        self._lost_untold = 0
        self._closing = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None

    def take(self, event: str, fields: Fields) -> None:
        """Queue the event, or only count it once the limit of this minute is reached."""
        if self._clock() >= self._minute_ends:
            self._end_minute()
        buffer = self._of_users if "username" in fields or "actor" in fields else self._of_strangers
        buffer.take(event, fields)

    def start(self) -> None:
        self._sending = asyncio.create_task(self._send_until_closed())

    async def close(self) -> None:
        """Write the waiting events, for LAST_SECONDS at most. Events that remain are counted as lost."""
        self._closing.set()
        if self._sending is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._sending, LAST_SECONDS)
        self._note_lost(len(self._of_users.drain()) + len(self._of_strangers.drain()))
        self._tell_lost("the worker ended")

    async def flush(self) -> None:
        """Write all waiting events in one round trip.

        A batch without acknowledgement counts as lost, although it may have been written. It is not sent again.
        """
        if self._closing.is_set() or self._clock() >= self._minute_ends:
            self._end_minute()
        batch, of_strangers = self._of_users.drain(), self._of_strangers.drain()
        lost = self._lost
        if not (batch or of_strangers or lost):
            return
        reason, is_written = "the worker ended", False
        try:
            lost_events = [make_event("events_lost", count=lost)] if lost else []
            await self._append([*batch, *lost_events], of_strangers)
            reason, is_written = "too many at once", True
        except Exception as error:  # no error may end the sending task
            reason = str(error)
        finally:
            self._lost -= lost if is_written else 0
            self._note_lost(0 if is_written else len(batch) + len(of_strangers))
            self._tell_lost(reason)

    async def _send_until_closed(self) -> None:
        is_last = False
        while not is_last:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), RETRY_DELAY_SECONDS)
            is_last = self._closing.is_set()
            await self.flush()

    def _end_minute(self) -> None:
        self._of_users.end_minute()
        self._of_strangers.end_minute()
        self._minute_ends = self._clock() + MINUTE_SECONDS

    def _note_lost(self, count: int) -> None:
        self._on_lost(count)
        self._lost += count
        self._lost_untold += count

    def _tell_lost(self, reason: str) -> None:
        if self._lost_untold:
            record_event("events_lost", count=self._lost_untold, reason=reason)
            self._lost_untold = 0


class _StreamBuffer:
    """The entries that wait for one stream, and the number of events of each name in this minute."""

    def __init__(self, note_lost: Callable[[int], None]) -> None:
        self._note_lost = note_lost
        self._waiting: list[bytes] = []
        self._written: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._named: set[tuple[str, str, str]] = set()

    def take(self, event: str, fields: Fields) -> None:
        is_first = self._note_name(event, fields)
        if is_first or self._written[event] < MAX_A_MINUTE:
            self._written[event] += 1
            self._add(make_event(event, **fields))
        else:
            self._left_out[event] += 1

    def end_minute(self) -> None:
        """Add an entry with the count of each event name that exceeded its limit, and start a new minute."""
        for event, count in self._left_out.items():
            self._add(make_event(event, count=count))
        for noted in (self._written, self._left_out, self._named):
            noted.clear()

    def drain(self) -> list[bytes]:
        entries, self._waiting = self._waiting, []
        return entries

    def _note_name(self, event: str, fields: Fields) -> bool:
        """Return True if this is the minute's first event of this name about the user or client."""
        # User names that differ only by case are one user.
        name = event, fields.get("username", "").lower() or fields.get("client_id", ""), fields.get("realm", "")
        if not name[1] or name in self._named or len(self._named) >= MAX_NAMED:
            return False
        self._named.add(name)
        return True

    def _add(self, entry: bytes) -> None:
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append(entry)
        else:
            self._note_lost(1)
