"""The path of security events to their streams in Redis: buffered at once, sent in batches, always bounded.

No request waits for a stream or fails with it. Events of operators, of users and of strangers have separate streams,
each with its own limits and buffer, so that nobody displaces the events of a more trusted group. Of one event name and
one user or client, a worker writes a few events a minute as they come. Of further ones it writes the newest at the end
of the minute, with their number. Vital events are all written as they come, but the further ones of a user to the
stream of strangers. Events that cannot be written are counted, and their number is recorded as soon as possible.

Clauses: SPEC §6, RFC 6819 §5.1.3
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from service.observability.audit import GROUPS, REFUSED_LOGINS, VITAL, Fields, make_event, record_event

RETRY_DELAY_SECONDS: Final = 1.0
MINUTE_SECONDS: Final = 60.0
MAX_A_MINUTE: Final = 5
"""The events of one name about one user or client that are written as they come. Those about nobody share this limit.

If there were more, the next minute writes none of them as they come, but only the newest at its end.
"""
MAX_WAITING: Final = 1_000
"""The most events that wait for one stream."""
MAX_NAMED: Final = 600
"""The most users or clients, for each event name, stream and minute, that get entries of their own."""
VITAL_FACTOR: Final = 10
"""The factor of MAX_WAITING and MAX_NAMED for vital events."""
LAST_SECONDS: Final = 2.0
"""The time that the end of a worker waits for the last batch."""


class AuditStream:
    """A buffer of events that are written with `append`, which gets the batches of all groups at once.

    `on_lost` is called with the number of events that cannot be written.
    """

    def __init__(
        self,
        append: Callable[..., Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
        *,
        on_lost: Callable[[int], object] = lambda count: None,
    ) -> None:
        self._append = append
        self._on_lost = on_lost
        self._clock = clock
        self._buffers = [_StreamBuffer(self._note_lost) for _ in GROUPS]
        self._minute_ends = 0.0
        self._lost = 0
        self._lost_untold = 0
        self._closing = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None

    def take(self, event: str, fields: Fields) -> None:
        """Queue the event, or keep it for the end of the minute once its limit is reached."""
        if self._clock() >= self._minute_ends:
            self._end_minute()
        of_users, of_operators, of_strangers = self._buffers
        is_of_user = "sub" in fields and event not in REFUSED_LOGINS
        is_of_operator = "actor" in fields and fields.get("reason") != "client"
        buffer = of_operators if is_of_operator else of_users if is_of_user else of_strangers
        if event not in VITAL:
            buffer.take(event, fields)
        elif buffer is of_operators or buffer.admits(event, fields):
            buffer.add(event, fields)
        else:
            of_strangers.add(event, fields)

    def start(self) -> None:
        self._sending = asyncio.create_task(self._send_until_closed())

    async def close(self) -> None:
        """Write the waiting events, for LAST_SECONDS at most. Events that remain are counted as lost."""
        self._closing.set()
        if self._sending is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._sending, LAST_SECONDS)
        self._note_lost(sum(len(buffer.drain()) for buffer in self._buffers))
        self._tell_lost("the worker ended")

    async def flush(self) -> None:
        """Write all waiting events in one round trip.

        A batch without acknowledgement counts as lost, although it may have been written. It is not sent again.
        """
        if self._closing.is_set() or self._clock() >= self._minute_ends:
            self._end_minute()
        batches, lost = [buffer.drain() for buffer in self._buffers], self._lost
        if lost:
            batches[0].append(make_event("events_lost", count=lost))
        if not any(batches):
            return
        reason, is_written = "the worker ended", False
        try:
            await self._append(*batches)
            reason, is_written = "too many at once", True
        except Exception as error:  # no error may end the sending task
            reason = str(error)
        finally:
            self._lost -= lost if is_written else 0
            self._note_lost(0 if is_written else sum(map(len, batches)) - bool(lost))
            self._tell_lost(reason)

    async def _send_until_closed(self) -> None:
        is_last = False
        while not is_last:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), RETRY_DELAY_SECONDS)
            is_last = self._closing.is_set()
            await self.flush()

    def _end_minute(self) -> None:
        for buffer in self._buffers:
            buffer.end_minute()
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
    """The entries that wait for one stream, and what this minute had by event name, and user or client."""

    def __init__(self, note_lost: Callable[[int], None]) -> None:
        self._note_lost = note_lost
        self._waiting: list[bytes] = []
        self._written: Counter[tuple[str, str]] = Counter()
        self._kept_back: dict[tuple[str, str], tuple[int, Fields]] = {}

    def take(self, event: str, fields: Fields) -> None:
        if self.admits(event, fields):
            self.add(event, fields)
            return
        key = _get_key(event, fields)
        if key not in self._written:
            key, fields = (event, ""), {}
        earlier, _ = self._kept_back.get(key, (0, {}))
        self._kept_back[key] = earlier + 1, fields

    def admits(self, event: str, fields: Fields) -> bool:
        """Count the event. Returns True if it is within the limits of this minute."""
        key = _get_key(event, fields)
        if key not in self._written and len(self._written) >= MAX_NAMED * _get_factor(event):
            return False
        self._written[key] += 1
        return self._written[key] <= MAX_A_MINUTE

    def end_minute(self) -> None:
        """Add the newest of the events that were kept back, and start a new minute."""
        for (event, _), (count, newest) in self._kept_back.items():
            self.add(event, newest | {"repeats": count})
        self._written = Counter(dict.fromkeys(self._kept_back, MAX_A_MINUTE))
        self._kept_back = {}

    def drain(self) -> list[bytes]:
        entries, self._waiting = self._waiting, []
        return entries

    def add(self, event: str, fields: Fields) -> None:
        if len(self._waiting) < MAX_WAITING * _get_factor(event):
            self._waiting.append(make_event(event, **fields))
        else:
            self._note_lost(1)


def _get_key(event: str, fields: Fields) -> tuple[str, str]:
    return event, fields.get("sub") or fields.get("client_id") or fields.get("realm", "")


def _get_factor(event: str) -> int:
    return VITAL_FACTOR if event in VITAL else 1
