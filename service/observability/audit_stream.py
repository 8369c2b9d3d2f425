"""The path of security events to their streams in Redis: buffered at once, sent in batches, always bounded.

No request waits for a stream or fails with it. Each group has a stream, limits and a buffer of its own, so that none
displaces the events of another. Of one event name and one user or client, a worker writes a few events a minute as they
come. Of further ones it writes the newest at the end of the minute, with their number. Events that cannot be written
are counted, and their number is recorded as soon as possible.

Clauses: SPEC §6, RFC 6819 §5.1.3
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from service.observability.audit import GROUPS, VITAL, Fields, get_group, make_event, record_event

RETRY_DELAY_SECONDS: Final = 1.0
MINUTE_SECONDS: Final = 60.0
MAX_A_MINUTE: Final = 5
"""The events of one name about one user or client that are written as they come. Those about nobody share this limit.

If there were more, the next minute writes none of them as they come, but only the newest at its end.
"""
MAX_WAITING: Final = 10_000
"""The most events that wait for one stream. It is also about the number that a stream keeps."""
MAX_NAMED: Final = 600
"""The most pairs of an event name and a user or client, for each stream and minute, that have entries of their own.

There is no such limit for vital events.
"""
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
        self._buffers = {group: _StreamBuffer(self._lose) for group in GROUPS}
        self._minute_ends = 0.0
        self._lost = 0
        self._closing = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None

    def take(self, event: str, fields: Fields) -> None:
        """Queue the event, or keep it for the end of the minute once its limit is reached."""
        if self._clock() >= self._minute_ends:
            self._end_minute()
        self._buffers[get_group(event, fields)].take(event, fields)

    def start(self) -> None:
        self._sending = asyncio.create_task(self._send_until_closed())

    async def close(self) -> None:
        """Write the waiting events, for LAST_SECONDS at most. Events that remain are counted as lost."""
        self._closing.set()
        if self._sending is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._sending, LAST_SECONDS)
        self._lose(sum(len(buffer.drain()) for buffer in self._buffers.values()), "the worker exited")

    async def flush(self) -> None:
        """Write all waiting events in one round trip.

        A batch without acknowledgement counts as lost, although it may have been written. It is not sent again.
        """
        if self._closing.is_set() or self._clock() >= self._minute_ends:
            self._end_minute()
        batches, lost = [buffer.drain() for buffer in self._buffers.values()], self._lost
        if lost:
            batches[0].append(make_event("events_lost", count=lost))
        if not any(batches):
            return
        failure: str | None = "the worker exited"
        try:
            await self._append(*batches)
            failure = None
        except Exception as error:  # no error may end the sending task
            failure = str(error)
        finally:
            if failure is None:
                self._lost -= lost
            else:
                self._lose(sum(map(len, batches)) - bool(lost), failure)

    async def _send_until_closed(self) -> None:
        is_last = False
        while not is_last:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), RETRY_DELAY_SECONDS)
            is_last = self._closing.is_set()
            await self.flush()

    def _end_minute(self) -> None:
        for buffer in self._buffers.values():
            buffer.end_minute()
        self._minute_ends = self._clock() + MINUTE_SECONDS

    def _lose(self, count: int, reason: str) -> None:
        if count:
            self._on_lost(count)
            self._lost += count
            record_event("events_lost", count=count, reason=reason)


class _StreamBuffer:
    """The entries that wait for one stream, and what this minute had by event name, and user or client."""

    def __init__(self, lose: Callable[[int, str], None]) -> None:
        self._lose = lose
        self._waiting: list[bytes] = []
        self._written: Counter[tuple[str, str]] = Counter()
        self._kept_back: dict[tuple[str, str], tuple[int, Fields]] = {}

    def take(self, event: str, fields: Fields) -> None:
        key = event, next((fields[name] for name in ("sub", "username", "client_id", "realm") if name in fields), "")
        if event not in VITAL and key not in self._written and len(self._written) >= MAX_NAMED:
            key, fields = (event, ""), {}
        elif self._written[key] < MAX_A_MINUTE:
            self._written[key] += 1
            self._add(event, fields)
            return
        earlier, _ = self._kept_back.get(key, (0, {}))
        self._kept_back[key] = earlier + 1, fields

    def end_minute(self) -> None:
        """Add the newest of the events that were kept back, and start a new minute."""
        for (event, _), (count, newest) in self._kept_back.items():
            self._add(event, newest | {"repeats": count})
        self._written = Counter(dict.fromkeys(self._kept_back, MAX_A_MINUTE))
        self._kept_back = {}

    def drain(self) -> list[bytes]:
        entries, self._waiting = self._waiting, []
        return entries

    def _add(self, event: str, fields: Fields) -> None:
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append(make_event(event, **fields))
        else:
            self._lose(1, "too many at once")
