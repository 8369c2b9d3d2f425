"""What another caller notices of each hostile request, at a real service in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import neighbours
from tests.hostile import Hostile, make_hostile_requests

SECONDS = 0.5
MOST_MS = 10
MOST_TIMES = 3

SHORT_SECONDS = 0.1
SHORT_ROUNDS = 8
"""The best of so many short rounds counts: other work on the machine only ever adds."""

FORMERLY_WORST = (
    "a cookie of backslashes",
    "a form of %41&",
    "a query of & at authorization",
    "a user name of combining characters in cep",
    "26,000 headers",
    "one-byte chunks",
    "trailers",
)


@pytest.mark.clause("decided-one-request-is-bounded")
def test_the_worst_of_hostile_requests_do_not_make_another_caller_wait(tmp_path: Path) -> None:
    with neighbours.running_neighbour(tmp_path, SHORT_SECONDS) as neighbour:
        hostile = {one.name: one for one in make_hostile_requests(neighbour.access_token)}
        allowed_ms = find_allowed_ms(neighbours.make_notice("undisturbed", neighbour.ask()))
        late = {
            name: best_ms
            for name in FORMERLY_WORST
            if (best_ms := find_best_p99_ms(neighbour, hostile[name], allowed_ms)) > allowed_ms
        }

    assert late == {}


def find_best_p99_ms(neighbour: neighbours.Neighbour, hostile: Hostile, allowed_ms: float) -> float:
    """Return the first 99th percentile that is allowed, or the best of all rounds."""
    best_ms = float("inf")
    for _ in range(SHORT_ROUNDS):
        best_ms = min(best_ms, neighbour.measure_round(hostile).p99_ms)
        if best_ms <= allowed_ms:
            break
    return best_ms


@pytest.mark.long
@pytest.mark.clause("decided-one-request-is-bounded")
def test_no_hostile_request_makes_another_caller_wait(tmp_path: Path) -> None:
    undisturbed, *notices = neighbours.measure(tmp_path, SECONDS)

    allowed_ms = find_allowed_ms(undisturbed)
    assert [notice for notice in notices if notice.p99_ms > allowed_ms] == []


def find_allowed_ms(undisturbed: neighbours.Notice) -> float:
    return max(MOST_MS, MOST_TIMES * undisturbed.p99_ms)
