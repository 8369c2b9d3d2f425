"""The clock for heartbeats and for how long cached answers may be used."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable

read_clock: Callable[[], float] = time.monotonic
"""Return seconds by a clock that is never set. On Linux it continues while the machine sleeps."""
if sys.platform == "linux":
    read_clock = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
