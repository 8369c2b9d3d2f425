"""The options of a group of connections, and their limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from .tracked_cache import InvalidationListener
from .url import RedisUrl

STABLE_SECONDS: Final = 1.0
"""A connection that lasted this long is followed by no pause. The pause after a shorter one ends within this time."""

MAX_PENDING: Final = 10_000
"""The number of commands that may be pending on one connection. The heartbeat bounds how long they are pending."""

DRIFT_SECONDS: Final = 0.1
"""If Redis's clock and ours drift apart by more than this, their difference is noted anew."""

WATCH_SECONDS: Final = 1.0
"""The interval at which Sentinels or cluster nodes are asked where the masters are."""


class ConnectionLimits(NamedTuple):
    """The limits of each connection. Only tests change them.

    At most `max_pending` commands wait for answers, those of all users of the connection together. A connection that
    ends within `stable_seconds` is followed by a pause.
    """

    max_pending: int = MAX_PENDING
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
