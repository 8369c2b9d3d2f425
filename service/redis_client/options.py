"""The options of a group of connections, and their limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from .tracked_cache import InvalidationListener
from .url import RedisUrl

STABLE_SECONDS: Final = 1.0
"""A connection that lasted this long is followed by no pause. The pause after a shorter one ends within this time."""

DRIFT_SECONDS: Final = 0.1
"""If Redis's clock and ours drift apart by more than this, their difference is noted anew."""

WATCH_SECONDS: Final = 1.0
"""The interval at which Sentinels or cluster nodes are asked where the masters are."""


class ConnectionLimits(NamedTuple):
    """The limits of each connection. Only tests change them.

    A connection that ends within `stable_seconds` is followed by a pause.
    """

    drift_seconds: float = DRIFT_SECONDS
    stable_seconds: float = STABLE_SECONDS
    watch_seconds: float = WATCH_SECONDS


DEFAULT_LIMITS: Final = ConnectionLimits()


class ConnectionOptions(NamedTuple):
    """The options of a group of connections. `name` appears in the log and in CLIENT LIST.

    If there is a `listener`, Redis tracks the keys that are read for it. Each heartbeat to a cluster node reads one of
    `probe_keys` that lies there. The probe keys should spread over all slots, and none of them needs to exist.
    """

    url: RedisUrl
    name: str
    listener: InvalidationListener | None = None
    probe_keys: Sequence[str] = ()
    limits: ConnectionLimits = DEFAULT_LIMITS
