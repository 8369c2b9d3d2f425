"""What the log hears of an outage that thousands of requests meet."""

from __future__ import annotations

import logging

import pytest

from service.outage import QUIET_SECONDS, OutageReport
from service.store.connection import StoreUnavailable


def test_an_outage_is_told_at_once_and_then_once_a_second_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    moment = 1000.0
    report = OutageReport(logging.getLogger("service.store"), "the store is not available", lambda: moment)
    outage = StoreUnavailable("ConnectionRefusedError")

    for _ in range(500):
        report.tell(outage)
    moment += QUIET_SECONDS
    for _ in range(500):
        report.tell(outage)
    moment += 1000
    report.tell(outage)

    assert [record.getMessage().partition("told: ")[2] for record in caplog.records] == [
        "1)",
        "500)",
        "500)",
    ]
    assert {record.levelname for record in caplog.records} == {"ERROR"}
