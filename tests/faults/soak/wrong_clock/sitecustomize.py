"""For a process that shall take the time for another: Python imports this file at its start where it lies on the path.

Only tests put it there. `WRONG_CLOCK_SECONDS` is how far the clock is ahead. Redis has its own.
"""

from __future__ import annotations

import datetime
import os
import time
from typing import Self

_AHEAD_SECONDS = float(os.environ.get("WRONG_CLOCK_SECONDS", "0"))
_true_time, _true_time_ns = time.time, time.time_ns


class _WrongDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Self:
        return super().now(tz) + datetime.timedelta(seconds=_AHEAD_SECONDS)


time.time = lambda: _true_time() + _AHEAD_SECONDS
time.time_ns = lambda: _true_time_ns() + int(_AHEAD_SECONDS * 1e9)
datetime.datetime = _WrongDatetime  # type: ignore[misc]
