"""A refresh with two workers, and among a million sessions."""

from __future__ import annotations

import random
from contextlib import ExitStack

from benchmarks.load import Round, measure_in_turns
from benchmarks.operations import make_refresh
from benchmarks.testbed import Testbed

ONE_WORKER, TWO_WORKERS = "refresh, one worker on all cores", "refresh, two workers on all cores"
FEW, MANY = "refresh, among few sessions", "refresh, among many sessions"
REFRESHED_SESSIONS = 1_000
"""The number of sessions that a round refreshes in each store. Their records therefore grow equally."""


def measure_workers(testbed: Testbed, rounds: int, seconds: int) -> dict[str, list[Round]]:
    """Measure one worker and two workers on all cores. Redis and the load are on the second core."""
    with (
        testbed.running(on_all_cores=True) as one,
        testbed.running(on_all_cores=True, WEB_CONCURRENCY="2") as two,
    ):
        targets = [make_refresh(ONE_WORKER, testbed, one), make_refresh(TWO_WORKERS, testbed, two)]
        return measure_in_turns(targets, rounds, seconds, warm=True)


def measure_many_sessions(few: Testbed, many: Testbed, sessions: int, rounds: int) -> dict[str, list[Round]]:
    """Measure a refresh in a store of a thousand sessions and in one of `sessions`, in rounds of one second."""
    unused_tokens = [token for _, token in many.start_sessions(sessions)]
    random.shuffle(unused_tokens)

    def restart_few(_: int) -> list[str]:
        few.deployment.clear()
        return [token for _, token in few.start_sessions(REFRESHED_SESSIONS)]

    def take_tokens(_: int) -> list[str]:
        taken = unused_tokens[-REFRESHED_SESSIONS:]
        del unused_tokens[-REFRESHED_SESSIONS:]
        return taken

    with ExitStack() as running:
        one, other = (running.enter_context(testbed.running()) for testbed in (few, many))
        targets = [
            make_refresh(FEW, few, one, supply=restart_few),
            make_refresh(MANY, many, other, supply=take_tokens),
        ]
        return measure_in_turns(targets, rounds, 1, warm=True)
