"""The streams of security events: appended to in batches, capped, and over when none have come for a month.

Events that name no known user and no actor lie in a stream of their own, since anybody can cause them: however many
there are, they displace none of the others. An entry is one JSON text without a line end. Its id begins with the time
by Redis, in milliseconds.

Clauses: SPEC §6, RFC 6819 §5.1.3
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from service.store.client import StoreClient
from service.store.keys import registry_key
from service.store.scripts import load_script

MAX_EVENTS: Final = 10_000
"""About so many entries are in each of the two streams."""

LIFETIME_MS: Final = 30 * 24 * 3600 * 1000

_APPEND: Final = load_script("append_events")
_KEYS: Final = (registry_key("events"), registry_key("events", "strangers"))

Position = tuple[str, str]
"""The id of the last entry that was read of each stream."""

BEGINNING: Final[Position] = ("0", "0")


class StoredEvent(NamedTuple):
    """`stream` is the index of its stream: 1 for what strangers can cause, else 0. Ids are unique within a stream."""

    id: str
    text: bytes
    stream: int

    @property
    def order(self) -> tuple[int, int]:
        time_ms, _, number = self.id.partition("-")
        return int(time_ms), int(number)


class EventStream:
    def __init__(self, redis: StoreClient) -> None:
        self._redis = redis

    async def append(self, events: Sequence[bytes], of_strangers: Sequence[bytes] = ()) -> None:
        """Append all or none, in one round trip. Each stream keeps about the last MOST_EVENTS."""
        if events or of_strangers:
            texts = [b"\n".join(batch).decode() for batch in (events, of_strangers)]
            await self._redis.run(_APPEND, _KEYS, [*texts, MAX_EVENTS, LIFETIME_MS])

    async def read(self, *, after: Position = BEGINNING, most: int = 1000) -> list[StoredEvent]:
        """Return the oldest entries after this position, oldest first: at most this many of each stream.

        Later entries of one stream are held back while the other may have earlier ones.
        """
        streams = await self._read_both([("XRANGE", f"({last}", "+", most) for last in after])
        ends = [entries[-1].order for entries in streams if len(entries) == most]
        return [entry for entry in _merge(streams) if not ends or entry.order <= min(ends)]

    async def read_latest(self, most: int) -> list[StoredEvent]:
        """Return the newest entries of each stream, at most this many of each, oldest first."""
        return _merge(await self._read_both([("XREVRANGE", "+", "-", most)] * 2))

    async def _read_both(self, ranges: Sequence[tuple[str, str, str, int]]) -> list[list[StoredEvent]]:
        answers = await self._redis.read_many(
            [
                (command, key, start, end, "COUNT", most)
                for key, (command, start, end, most) in zip(_KEYS, ranges, strict=True)
            ]
        )
        return [_parse(stream, entries) for stream, entries in enumerate(answers)]


def get_position(entries: Sequence[StoredEvent], after: Position = BEGINNING) -> Position:
    """Return where to read on after these entries, which were read from this position."""
    last = dict(enumerate(after)) | {entry.stream: entry.id for entry in entries}
    return last[0], last[1]


def _merge(streams: Sequence[Sequence[StoredEvent]]) -> list[StoredEvent]:
    return sorted((entry for entries in streams for entry in entries), key=lambda entry: (entry.order, entry.stream))


def _parse(stream: int, entries: Sequence[Any]) -> list[StoredEvent]:
    return [StoredEvent(name.decode(), fields[1], stream) for name, fields in entries]
