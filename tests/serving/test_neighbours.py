"""What another caller notices of each hostile request, at a real service in a process of its own."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from benchmarks import neighbours
from tests.hostile import ASKED, AUTHORIZATION, Hostile, get, make_hostile_requests

MOST_MS = 10
MOST_TIMES = 3

ROUND_SECONDS = 0.1
MOST_ROUNDS = 40
"""The best of so many short rounds counts: other work on the machine only ever adds."""

HARMLESS = Hostile.of("an authorization request", get(f"{AUTHORIZATION}?{ASKED}"), 200)

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
@pytest.mark.parametrize(
    "names", [pytest.param(FORMERLY_WORST, id="the worst"), pytest.param(None, id="all", marks=pytest.mark.long)]
)
def test_no_hostile_request_makes_another_caller_wait(tmp_path: Path, names: Collection[str] | None) -> None:
    with neighbours.running_neighbour(tmp_path, ROUND_SECONDS) as neighbour:
        hostile = [one for one in make_hostile_requests(neighbour.access_token) if names is None or one.name in names]
        late = {one.name: late_by for one in hostile if (late_by := find_delay(neighbour, one)) is not None}

    assert len(hostile) >= len(FORMERLY_WORST)
    assert late == {}


def find_delay(neighbour: neighbours.Neighbour, hostile: Hostile) -> tuple[float, float] | None:
    """Return None if one round is fast enough, else the 99th percentiles of the last round and of a harmless one.

    On a busy machine a round may take three times as long as a round of harmless requests right after it.
    """
    for _ in range(MOST_ROUNDS):
        p99_ms = neighbour.measure_round(hostile).p99_ms
        if p99_ms <= MOST_MS:
            return None
        harmless_ms = neighbour.measure_round(HARMLESS).p99_ms
        if p99_ms <= MOST_TIMES * harmless_ms:
            return None
    return p99_ms, harmless_ms
