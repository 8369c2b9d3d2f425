"""An outage amid the check of a password is nobody's failed attempt."""

from __future__ import annotations

import pytest

from service.settings import load_settings
from service.store.scripts import load_script
from tests.cast import ALICE, PHONE_APP, Person, assert_error
from tests.conftest import Clock, serving
from tests.faults.stage import Stage

SETTLE = load_script("settle_attempt").sha1.encode()
RESERVE = load_script("reserve_attempt").sha1.encode()
WRONG = Person(ALICE.username, "wrong")
ALLOWED = 3
LEASE_SECONDS = 10


@pytest.mark.clause("decided-only-failures-count", "decided-login-limit", "decided-i10-outage-is-not-theft")
@pytest.mark.parametrize("lost", [RESERVE, SETTLE], ids=["reservation", "settlement"])
async def test_checks_that_an_outage_broke_off_use_up_nobodys_attempts(stage: Stage, lost: bytes) -> None:
    limits = {
        "TOKEN_SERVICE_LOGIN_ATTEMPTS": f"{ALLOWED}/minute",
        "TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS": f"{ALLOWED}/minute",
    }
    settings = load_settings(stage.environment(REDIS_URL=stage.proxy.url, **limits))
    clock = Clock(stage.store)
    async with serving(settings, clock) as http:
        for _ in range(ALLOWED):
            stage.proxy.cut_after = lost
            assert_error(await PHONE_APP.log_in(http, ALICE), 503, "temporarily_unavailable")
            assert stage.proxy.cut_after is None

        clock.advance(LEASE_SECONDS)
        for _ in range(ALLOWED):
            assert_error(await PHONE_APP.log_in(http, WRONG), 400, "invalid_grant")
        assert_error(await PHONE_APP.log_in(http, ALICE), 429, "invalid_grant")
