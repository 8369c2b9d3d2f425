"""An outage during the check of a password counts as no failed attempt, and keeps no login waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx2
import pytest

from service.config.settings import load_settings
from service.redis_client.options import ConnectionLimits
from service.worker import Worker
from tests.conftest import Clock, serving_worker
from tests.faults.deployment import LATEST_SECONDS, Deployment, call_of, limit_connections
from tests.support.clients_and_users import (
    ALICE,
    MADE_SECRET,
    PHONE_APP,
    UserCredentials,
    assert_error,
    tokens_of,
)
from tests.support.loop_time import STEP_SECONDS, LoopTime
from tests.support.waiting import until, until_status

SETTLE = call_of("settle_attempt")
RESERVE = call_of("reserve_attempt")
WRONG = UserCredentials(ALICE.username, "wrong")
ALLOWED = 3
LEASE_SECONDS = 10
CONTENDERS = 30

Ask = Callable[[httpx2.AsyncClient, str], Awaitable[httpx2.Response]]


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
    limit_connections(worker, ConnectionLimits(stable_seconds=0.0))  # no pause before each new connection
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


def refresh(http: httpx2.AsyncClient, refresh_token: str) -> Awaitable[httpx2.Response]:
    """Refresh with a client whose right secret needs room under the limit."""
    return MADE_SECRET.refresh(http, refresh_token)


def log_in(http: httpx2.AsyncClient, _: str) -> Awaitable[httpx2.Response]:
    return PHONE_APP.log_in(http, ALICE)


@pytest.mark.clause("decided-i8-fail-closed", "decided-redis-away")
@pytest.mark.parametrize("ask", [refresh, log_in])
async def test_who_waits_behind_others_for_a_frozen_redis_is_answered_in_time_as_well(
    deployment: Deployment, held_time: LoopTime, ask: Ask
) -> None:
    """The logins come in a row. The first waits in vain before the last begins to wait."""
    worker = Worker(load_settings(deployment.environment()))
    worker.authenticator.admitted_seconds = 0.0
    async with serving_worker(worker) as http:
        refresh_token = tokens_of(await MADE_SECRET.log_in(http, ALICE))["refresh_token"]
        seconds: list[float] = []

        async def measure() -> None:
            asked = held_time.read()
            assert_error(await ask(http, refresh_token), 503, "temporarily_unavailable")
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
            await until_status(lambda: ask(http, refresh_token), 200)

    assert max(seconds) <= LATEST_SECONDS
