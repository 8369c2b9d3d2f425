"""The clock of heartbeats and of what is believed because of them."""

from __future__ import annotations

import time
from collections.abc import Callable

read_clock: Callable[[], float] = time.monotonic
"""Seconds by a clock that nobody sets; on Linux by one that goes on while the machine sleeps."""
