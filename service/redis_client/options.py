"""What a group of connections is for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from .url import RedisUrl


class InvalidationListener(Protocol):
    """What is remembered of answers, and is told what to forget."""

    def invalidate(self, keys: Sequence[bytes] | None) -> None:
        """Forget keys that changed. None: any key may have changed."""

    def invalidate_slots(self, slots: Collection[int]) -> None:
        """Forget the keys of hash slots whose owner changed."""


class ConnectionOptions(NamedTuple):
    """What connections are for. `name` is for the log and for CLIENT LIST.

    With a `listener` Redis tracks the keys that are read for it. `scripts`, texts by their SHA-1, are loaded by the
    handshake. Each heartbeat to a node of a cluster reads one of `probe_keys` that lies there. They should spread over
    all slots, and none of them needs to exist.
    """

    url: RedisUrl
    name: str
    listener: InvalidationListener | None = None
    scripts: Mapping[str, str] = MappingProxyType({})
    probe_keys: Sequence[str] = ()
