"""A refresh among a million sessions."""

from __future__ import annotations

import random
from contextlib import ExitStack

from benchmarks.load import Round, measure_in_turns
from benchmarks.operations import make_refresh
from benchmarks.testbed import Testbed

FEW, MANY = "refresh, among few sessions", "refresh, among many sessions"
REFRESHED_SESSIONS = 1_000
"""The number of sessions that a round refreshes in each store. Their records therefore grow equally."""


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
