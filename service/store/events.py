"""The streams of security events: appended to in batches, capped, and deleted a month after the last event.

Each group has a stream, so that events of one group never displace those of another. An entry is one JSON text without
a line end. The id of an entry begins with the Redis time in milliseconds.

Clauses: SPEC §6, RFC 6819 §5.1.3
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from service.observability.audit import GROUPS
from service.redis_client.connection import Command
from service.store.client import StoreClient, load_script
from service.store.keys import registry_key

MAX_EVENTS: Final = 10_000
"""The approximate number of entries that each stream keeps."""

LIFETIME_MS: Final = 30 * 24 * 3600 * 1000

_APPEND: Final = load_script("append_events")
_KEYS: Final = tuple(registry_key("events", group) for group in GROUPS)

Position = tuple[str, ...]
"""The ids of the last entries that were read, one for each stream."""

BEGINNING: Final[Position] = ("0",) * len(GROUPS)


class StoredEvent(NamedTuple):
    """An event. `stream` is the place of its group in GROUPS. Ids are unique within a stream."""

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

    async def append(self, *batches: Sequence[bytes]) -> None:
        """Append a batch to each stream, in the order of GROUPS: all events or none, in one round trip."""
        if any(batches):
            texts = [b"\n".join(batch).decode() for batch in batches]
            await self._redis.run(
                _APPEND, streams=_KEYS[: len(batches)], most=MAX_EVENTS, lifetime_ms=LIFETIME_MS, batches=texts
            )

    async def read(self, *, after: Position = BEGINNING, most: int = 1000) -> list[StoredEvent]:
        """Return the oldest entries after the position, oldest first, at most `most` of each stream.

        If a stream yields `most` entries, it may have more. Entries of other streams that are later than the last of
        these are then left for the next call, so that the order stays right.
        """
        positions = zip(_KEYS, after, strict=True)
        streams = await self._read_all([("XRANGE", key, f"({last}", "+", "COUNT", most) for key, last in positions])
        ends = [entries[-1].order for entries in streams if len(entries) == most]
        return [entry for entry in _merge(streams) if not ends or entry.order <= min(ends)]

    async def read_latest(self, most: int) -> list[StoredEvent]:
        """Return the newest entries, oldest first, at most `most` of each stream."""
        return _merge(await self._read_all([("XREVRANGE", key, "+", "-", "COUNT", most) for key in _KEYS]))

    async def _read_all(self, commands: Sequence[Command]) -> list[list[StoredEvent]]:
        streams = enumerate(await self._redis.read_many(commands))
        return [[StoredEvent(name.decode(), fields[3], n) for name, fields in entries] for n, entries in streams]


def get_position(entries: Sequence[StoredEvent], after: Position = BEGINNING) -> Position:
    """Return the position after these entries, which were read from the position `after`."""
    last = dict(enumerate(after)) | {entry.stream: entry.id for entry in entries}
    return tuple(last.values())


def _merge(streams: Sequence[Sequence[StoredEvent]]) -> list[StoredEvent]:
    return sorted((entry for entries in streams for entry in entries), key=lambda entry: (entry.order, entry.stream))
