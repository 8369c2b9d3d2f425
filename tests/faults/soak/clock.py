"""The time of a run: the clock that orders its requests, and the pauses that people and faults make.

No other module of this folder reads a clock or sleeps.
"""

import asyncio
import random
import time
from typing import Final

from tests.support.waiting import read_real_clock

read_clock: Final = read_real_clock
"""Requests and faults are ordered by it. What it says of their length is judged by `scripts/soak` alone."""


def rest(rng: random.Random, shortest_seconds: float, longest_seconds: float) -> None:
    """Let the load go on for a time of chance."""
    time.sleep(rng.uniform(shortest_seconds, longest_seconds))


async def pause(seconds: float) -> None:
    """Do nothing in this lane of the load."""
    await asyncio.sleep(seconds)
