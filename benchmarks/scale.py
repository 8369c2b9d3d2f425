"""The same refresh at other scales: by two workers, and among a million sessions."""

from __future__ import annotations

import random
from contextlib import ExitStack

from benchmarks.arena import Arena
from benchmarks.load import Round, measure_in_turns
from benchmarks.operations import make_refresh

ONE_WORKER, TWO_WORKERS = "refresh, one worker on all cores", "refresh, two workers on all cores"
FEW, MANY = "refresh, among few sessions", "refresh, among many sessions"
TOUCHED = 1_000
"""Sessions that a round refreshes, in either store: their records grow alike."""


def measure_workers(arena: Arena, rounds: int, seconds: int) -> dict[str, list[Round]]:
    """On all cores, with Redis and the load on the second of them."""
    with (
        arena.running(everywhere=True) as one,
        arena.running(everywhere=True, WEB_CONCURRENCY="2") as two,
    ):
        targets = [make_refresh(ONE_WORKER, arena, one), make_refresh(TWO_WORKERS, arena, two)]
        return measure_in_turns(targets, rounds, seconds, warm=True)


def measure_many_sessions(few: Arena, many: Arena, sessions: int, rounds: int) -> dict[str, list[Round]]:
    """Two stores at once, one with a thousand sessions and one with so many, in rounds of a second."""
    waiting = [token for _, token in many.start_sessions(sessions)]
    random.shuffle(waiting)

    def start_few(_: int) -> list[str]:
        few.deployment.clear()
        return [token for _, token in few.start_sessions(TOUCHED)]

    def take_some_of_many(_: int) -> list[str]:
        taken = waiting[-TOUCHED:]
        del waiting[-TOUCHED:]
        return taken

    with ExitStack() as running:
        one, other = (running.enter_context(arena.running()) for arena in (few, many))
        targets = [
            make_refresh(FEW, few, one, supply=start_few),
            make_refresh(MANY, many, other, supply=take_some_of_many),
        ]
        return measure_in_turns(targets, rounds, 1, warm=True)
