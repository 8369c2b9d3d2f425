"""The options of a group of connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from .url import RedisUrl

STABLE_SECONDS: Final = 1.0
"""A connection that lasted this long is followed by no pause. The pause after a shorter one ends within this time."""

DRIFT_SECONDS: Final = 0.1
"""If Redis's clock and ours drift apart by more than this, their difference is noted anew."""

WATCH_SECONDS: Final = 1.0
"""The interval at which Sentinels or cluster nodes are asked where the masters are."""


Invalidate = Callable[[Sequence[bytes] | None], None]
"""A function of a cache that forgets keys that changed. None means that any key may have changed."""


class ConnectionOptions(NamedTuple):
    """The options of a group of connections. `name` appears in the log and in CLIENT LIST.

    If there is `invalidate`, Redis tracks the keys that are read for it. Each heartbeat to a cluster node reads one of
    `probe_keys` that lies there. The probe keys should spread over all slots, and none of them needs to exist. Only
    tests change the limits in seconds.
    """

    url: RedisUrl
    name: str
    invalidate: Invalidate | None = None
    probe_keys: Sequence[str] = ()
    drift_seconds: float = DRIFT_SECONDS
    stable_seconds: float = STABLE_SECONDS
    watch_seconds: float = WATCH_SECONDS
