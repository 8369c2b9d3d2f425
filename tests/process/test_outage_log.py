"""The log of an outage that thousands of requests meet."""

from __future__ import annotations

import logging

import pytest

from service.gateway.outage_log import QUIET_SECONDS, OutageLog
from service.redis_client.deadline import StoreUnavailable


def test_an_outage_is_told_at_once_and_then_once_a_second_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    moment = 1000.0
    report = OutageLog(logging.getLogger("service.gateway"), "the store is not available", lambda: moment)
    outage = StoreUnavailable("ConnectionRefusedError")

    for _ in range(500):
        report.log_error(outage)
    moment += QUIET_SECONDS
    for _ in range(500):
        report.log_error(outage)
    moment += 1000
    report.log_error(outage)

    assert [record.getMessage().partition("report: ")[2] for record in caplog.records] == [
        "1)",
        "500)",
        "500)",
    ]
    assert {record.levelname for record in caplog.records} == {"ERROR"}


def test_the_end_of_an_outage_is_told_once_with_what_it_cost(caplog: pytest.LogCaptureFixture) -> None:
    moment = 1000.0
    report = OutageLog(logging.getLogger("service.realms"), "the organisation is away", lambda: moment)
    report.report_recovery()
    report.log_error(StoreUnavailable("no answer"))
    for _ in range(7):
        report.count()
    moment += QUIET_SECONDS
    report.report_recovery()
    report.report_recovery()

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "the organisation is away: no answer (requests refused since the last report: 1)"),
        ("WARNING", "over: the organisation is away (requests refused since the last report: 7)"),
    ]
