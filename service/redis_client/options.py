"""The options of a group of connections."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from .url import RedisUrl


class InvalidationListener(Protocol):
    """A cache of answers that gets the invalidations."""

    def invalidate(self, keys: Sequence[bytes] | None) -> None:
        """Forget keys that changed. None means that any key may have changed."""

    def invalidate_slots(self, slots: Collection[int]) -> None:
        """Forget the keys of hash slots whose owner changed."""


class ConnectionOptions(NamedTuple):
    """The options of a group of connections. `name` appears in the log and in CLIENT LIST.

    If there is a `listener`, Redis tracks the keys that are read for it. `scripts` maps SHA-1 digests to the texts that
    the handshake loads. Each heartbeat to a cluster node reads one of `probe_keys` that lies there. The probe keys
    should spread over all slots, and none of them needs to exist.
    """

    url: RedisUrl
    name: str
    listener: InvalidationListener | None = None
    scripts: Mapping[str, str] = MappingProxyType({})
    probe_keys: Sequence[str] = ()
