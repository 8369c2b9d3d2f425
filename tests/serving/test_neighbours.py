"""What another caller notices of each hostile request, at a real service in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import neighbours

SECONDS = 0.5
MOST_MS = 10
MOST_TIMES = 3


@pytest.mark.long
@pytest.mark.clause("decided-one-request-is-bounded")
def test_no_hostile_request_makes_another_caller_wait(tmp_path: Path) -> None:
    undisturbed, *notices = neighbours.measure(tmp_path, SECONDS)

    allowed_ms = max(MOST_MS, MOST_TIMES * undisturbed.p99_ms)
    assert [notice for notice in notices if notice.p99_ms > allowed_ms] == []
