"""The stream of security events: appended to in batches, capped, and over when none have come for a month.

An entry is one JSON text without a line end. Its id begins with the time by Redis, in milliseconds.

Clauses: SPEC §6, RFC 6819 §5.1.3
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from service.store.connection import StoreConnection
from service.store.keys import registry_key
from service.store.scripts import load_script

MOST_EVENTS: Final = 10_000
LIFETIME_MS: Final = 30 * 24 * 3600 * 1000

_APPEND: Final = load_script("append_events")


class EventStream:
    def __init__(self, connection: StoreConnection) -> None:
        self._connection = connection

    async def append(self, events: Sequence[bytes]) -> None:
        """In one round trip, all or none. The stream keeps about the last MOST_EVENTS."""
        if events:
            text = b"\n".join(events).decode()
            await self._connection.run(_APPEND, [registry_key("events")], [text, MOST_EVENTS, LIFETIME_MS])

    async def read(self, *, after: str = "0", most: int = 1000) -> list[tuple[str, bytes]]:
        """The oldest entries that come after this id, oldest first; whoever follows the stream asks again and again."""
        return _parse(await self._connection.read("XRANGE", registry_key("events"), f"({after}", "+", "COUNT", most))

    async def read_latest(self, most: int) -> list[tuple[str, bytes]]:
        """The newest entries, oldest first."""
        return _parse(await self._connection.read("XREVRANGE", registry_key("events"), "+", "-", "COUNT", most))[::-1]


def _parse(entries: Sequence[Any]) -> list[tuple[str, bytes]]:
    return [(name.decode(), fields[1]) for name, fields in entries]
