"""`scripts/soak --model`: random histories of the Lua scripts, for as long as is asked for."""

import asyncio
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Final

from tests.conftest import AnyRedis, running_redis
from tests.invariants.histories import Histories, Step, Violation, draw_history
from tests.invariants.planted_faults import FAULTS, planting
from tests.support.waiting import read_real_clock

MOST_HISTORIES: Final = 400

Play = Callable[[list[Step]], int]
"""A function that plays a history on an empty store, and returns the number of its operations."""


@contextmanager
def playing(server: AnyRedis) -> Iterator[Play]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda steps: Histories(server, loop).play(steps)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def find_violation(play: Play, steps: list[Step]) -> Violation | None:
    try:
        play(steps)
    except Violation as violation:
        return violation
    return None


def shorten(play: Play, steps: list[Step], violation: Violation) -> Violation:
    """Return the violation of a history without the steps that it does not need. It may be another violation."""
    for position in reversed(range(1, len(steps))):
        shorter = steps[:position] + steps[position + 1 :]
        found = find_violation(play, shorter)
        if found:
            steps, violation = shorter, found
    return violation


def count_histories_until_found(play: Play, fault: str, seed: str) -> int | None:
    """Return after how many histories the planted fault is found, or None if it is not."""
    with planting(fault):
        for number in range(1, MOST_HISTORIES + 1):
            if find_violation(play, draw_history(f"{seed} {number}")):
                return number
    return None


def explore_for(minutes: float, seed: str, tell: Callable[[str], None]) -> bool:
    """Find the planted faults, and then play histories until the time is over. Returns True if all went as it should.

    A violation is told with its seed, and with the shortest history that has one.
    """
    started, operations, violations = read_real_clock(), 0, 0
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
        running_redis(Path(folder)) as server,
        playing(server) as play,
    ):
        found = {fault: count_histories_until_found(play, fault, seed) for fault in FAULTS}
        for fault in [fault for fault, number in found.items() if number is None]:
            tell(f"not found in {MOST_HISTORIES} histories: {fault}")
        numbers = [number for number in found.values() if number is not None]
        after = (
            f"after {median(numbers or [0]):.0f} histories in the median, {max(numbers, default=0)} in the worst case"
        )
        tell(f"{len(numbers)} of {len(FAULTS)} planted faults found, {after}")
        for number in count(1):
            steps = draw_history(f"{seed} {number}")
            try:
                operations += play(steps)
            except Violation as violation:
                violations += 1
                tell(f"history {number} of seed {seed}: {violation}")
                tell(f"the shortest such history: {shorten(play, steps, violation)}")
            passed = (read_real_clock() - started) / 60
            if passed >= minutes:
                break
    tell(f"{number} histories, {operations} operations, {violations} violations in {passed:.1f} minutes, seed {seed}")
    return not violations and None not in found.values()
