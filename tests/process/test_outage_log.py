"""The log of an outage: one line at its start, and one at its end."""

import logging

import pytest

from service.gateway.outage_log import QUIET_SECONDS, OutageLog
from service.redis_client.deadline import StoreUnavailable


def test_end_of_an_outage_is_logged_once_with_its_cost(caplog: pytest.LogCaptureFixture) -> None:
    moment = 1000.0
    report = OutageLog(logging.getLogger("service.realms"), "the organisation is away", lambda: moment)
    report.report_recovery()
    for _ in range(8):
        report.log_error(StoreUnavailable("no answer"))
    moment += QUIET_SECONDS
    report.report_recovery()
    report.report_recovery()

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "the organisation is away: no answer (requests rejected since the last report: 1)"),
        ("WARNING", "resolved: the organisation is away (requests rejected since last report: 7)"),
    ]
