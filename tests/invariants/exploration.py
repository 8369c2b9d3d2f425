"""`scripts/soak --model`: random histories of the Lua scripts, for as long as is asked for."""

import asyncio
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, cast

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conftest import AnyRedis, running_redis
from tests.invariants.histories import Course, Histories, Violation
from tests.invariants.planted_faults import FAULTS, planting
from tests.support.waiting import read_real_clock

STEPS: Final = 40
HISTORIES_OF_A_BATCH: Final = 25
MOST_HISTORIES_OF_A_FAULT: Final = 400


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def explore(server: AnyRedis, course: Course, histories: int, *, shrinks: bool = True) -> None:
    """Run so many histories. Raises Violation if the service does something else than the model.

    With `shrinks` the shortest such history is looked for, which Hypothesis prints.
    """
    with running_loop() as loop:

        def make_histories() -> Histories:
            return Histories(server, loop, course)

        if course.seed:
            hypothesis.seed(f"{course.seed} {course.histories}")(make_histories)
        run_state_machine_as_test(
            cast("type[Histories]", make_histories),
            settings=settings(
                max_examples=histories,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                print_blob=True,
                report_multiple_bugs=False,
                phases=[Phase.generate, Phase.shrink] if shrinks else [Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )


def count_histories_until_found(server: AnyRedis, fault: str, seed: str) -> int | None:
    """Return after how many histories the planted fault is found, or None if it is not."""
    course = Course(f"{seed} {fault}")
    with planting(fault):
        try:
            explore(server, course, MOST_HISTORIES_OF_A_FAULT, shrinks=False)
        except Violation:
            return course.violated_after
    return None


def find_planted_faults(server: AnyRedis, seed: str, tell: Callable[[str], None]) -> bool:
    """Return True if random histories find each planted fault."""
    found = {fault: count_histories_until_found(server, fault, seed) for fault in FAULTS}
    numbers = [number for number in found.values() if number is not None]
    for fault in found.keys() - {fault for fault, number in found.items() if number is not None}:
        tell(f"not found in {MOST_HISTORIES_OF_A_FAULT} histories: {fault}")
    tell(
        f"{len(numbers)} of {len(FAULTS)} planted faults found, after {median(numbers):.0f} histories in the median, "
        f"{max(numbers)} in the worst case"
    )
    return len(numbers) == len(FAULTS)


def explore_for(minutes: float, seed: str, tell: Callable[[str], None]) -> bool:
    """Find the planted faults, and then run histories until the time is over. Returns True if all went as it should."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, running_redis(Path(folder)) as server:
        started, course, violations = read_real_clock(), Course(seed), 0
        is_found = find_planted_faults(server, seed, tell)
        while True:
            try:
                explore(server, course, HISTORIES_OF_A_BATCH)
            except Violation as violation:
                violations += 1
                tell("\n".join([str(violation), *getattr(violation, "__notes__", ())]))
            if read_real_clock() - started >= minutes * 60:
                break
        passed = (read_real_clock() - started) / 60
    done = f"{course.histories} histories, {course.operations} operations, {violations} violations"
    tell(f"{done} in {passed:.1f} minutes, seed {seed}")
    return is_found and not violations
