"""An outage during the check of a password counts as no failed attempt, and keeps no login waiting."""

import asyncio

import pytest

from service.config.settings import load_settings
from service.worker import Worker
from tests.conftest import Clock, serving_worker
from tests.faults.deployment import LATEST_SECONDS, Deployment, call_of
from tests.support.clients_and_users import ALICE, PHONE_APP, UserCredentials, assert_error, tokens_of
from tests.support.loop_time import STEP_SECONDS, LoopTime
from tests.support.waiting import until, until_status

SETTLE = call_of("settle_attempt")
RESERVE = call_of("reserve_attempt")
WRONG = UserCredentials(ALICE.username, "wrong")
ALLOWED = 3
LEASE_SECONDS = 10
CONTENDERS = 30


@pytest.mark.clause("decided-only-failures-count", "decided-login-limit", "decided-i10-outage-is-not-theft")
@pytest.mark.parametrize("lost", [RESERVE, SETTLE], ids=["reservation", "settlement"])
async def test_checks_that_an_outage_broke_off_use_up_nobodys_attempts(deployment: Deployment, lost: bytes) -> None:
    limits = {
        "TOKEN_SERVICE_LOGIN_ATTEMPTS": f"{ALLOWED}/minute",
        "TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS": f"{ALLOWED}/minute",
    }
    settings = load_settings(deployment.environment(REDIS_URL=deployment.proxy.url, **limits))
    clock = Clock(deployment.store)
    worker = Worker(settings, lambda: clock.offset_ms)
    # no pause before each new connection
    worker.redis.router.options = worker.redis.router.options._replace(stable_seconds=0.0)
    async with serving_worker(worker) as http:
        for _ in range(ALLOWED):
            deployment.proxy.cut_after = lost
            answer = await PHONE_APP.log_in(http, ALICE)
            # No login waits for its settlement. The start of the session may be lost with it, or come after the outage.
            if lost == RESERVE or answer.status_code != 200:
                assert_error(answer, 503, "temporarily_unavailable")
            await until(lambda: deployment.proxy.cut_after is None)

        clock.advance(LEASE_SECONDS)
        for _ in range(ALLOWED):
            assert_error(await PHONE_APP.log_in(http, WRONG), 400, "invalid_grant")
        assert_error(await PHONE_APP.log_in(http, ALICE), 429, "invalid_grant")


@pytest.mark.clause("decided-i8-fail-closed", "decided-redis-away")
async def test_queued_requests_are_answered_in_time_on_a_frozen_redis(
    deployment: Deployment, held_time: LoopTime
) -> None:
    """The logins come in a row. The first waits in vain before the last begins to wait."""
    worker = Worker(load_settings(deployment.environment()))
    async with serving_worker(worker) as http:
        tokens_of(await PHONE_APP.log_in(http, ALICE))
        seconds: list[float] = []

        async def measure() -> None:
            asked = held_time.read()
            assert_error(await PHONE_APP.log_in(http, ALICE), 503, "temporarily_unavailable")
            seconds.append(held_time.read() - asked)

        with deployment.frozen():
            contenders = []
            for _ in range(CONTENDERS):
                contenders.append(asyncio.create_task(measure()))
                await held_time.advance_in_steps(STEP_SECONDS)
            await held_time.advance_in_steps(LATEST_SECONDS)
            assert len(seconds) == CONTENDERS
            await asyncio.gather(*contenders)
        with held_time.running_at(1):
            await until_status(lambda: PHONE_APP.log_in(http, ALICE), 200)

    assert max(seconds) <= LATEST_SECONDS
