"""A Redis that answers late: what takes one or two answers is served, what takes more is 503 in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx2
import pytest

from service.config.settings import load_settings
from service.redis_client.deadline import end_task
from service.redis_client.options import ConnectionLimits
from service.worker import Worker
from tests.conftest import make_code, serving_worker
from tests.faults.deployment import LATEST_SECONDS, Deployment, limit_connections
from tests.faults.proxy import Proxy
from tests.support.clients_and_users import (
    ALICE,
    AUDITOR,
    PHONE_APP,
    PHONE_CALLBACK,
    WEB_SHOP,
    assert_error,
    tokens_of,
    verify,
)
from tests.support.loop_time import STEP_SECONDS, TURNS, LoopTime
from tests.support.waiting import run_loop_once, until_status

ANSWER_SECONDS = 0.6
ROUNDS = 2


@asynccontextmanager
async def passing_time(held_time: LoopTime, proxy: Proxy) -> AsyncIterator[None]:
    """Let time pass, but not while Redis is busy, so that the delay of the proxy counts and that of the machine does
    not.
    """

    async def go_on() -> None:
        quiet_turns = 0
        while True:
            await run_loop_once()
            quiet_turns = quiet_turns + 1 if proxy.is_quiet else 0
            if quiet_turns == TURNS:
                held_time.advance(STEP_SECONDS)
                quiet_turns = 0

    passing = asyncio.create_task(go_on())
    try:
        yield
    finally:
        await end_task(passing)


@pytest.mark.clause("decided-redis-away", "decided-i8-one-deadline", "decided-i8-fail-closed")
async def test_a_redis_that_answers_late_is_no_outage(
    deployment: Deployment, worker: Worker, held_time: LoopTime
) -> None:
    """All connections are made anew while it is slow. A login needs more answers than there is time for."""

    async def measure(request: Awaitable[httpx2.Response]) -> tuple[httpx2.Response, float]:
        asked = held_time.read()
        return await request, held_time.read() - asked

    proxy = Proxy(deployment.redis.port)
    slow_worker = Worker(load_settings(deployment.environment(REDIS_URL=proxy.url)))
    # Redis's clock is not the one that the test moves.
    limit_connections(slow_worker, ConnectionLimits(drift_seconds=3_600.0))
    async with passing_time(held_time, proxy), proxy.serving(), serving_worker(slow_worker) as http:
        alice = tokens_of(await PHONE_APP.log_in(http, ALICE))
        shop = [tokens_of(await WEB_SHOP.log_in(http, ALICE)) for _ in range(2 * ROUNDS)]
        for _ in range(3):  # now the worker has cached this client's secret
            await AUDITOR.introspect(http, alice["access_token"])
        proxy.delay_seconds = ANSWER_SECONDS
        proxy.cut()
        asks: tuple[Callable[[], Awaitable[httpx2.Response]], ...] = (
            lambda: PHONE_APP.refresh(http, alice["refresh_token"]),
            lambda: verify(http, alice["access_token"]),
            lambda: AUDITOR.introspect(http, alice["access_token"]),
            lambda: WEB_SHOP.revoke(http, "nothing"),
        )
        for ask in asks:
            await until_status(ask, 200)

        for _ in range(ROUNDS):
            code = await make_code(worker)
            under_way = asyncio.gather(
                measure(PHONE_APP.log_in(http, ALICE)), measure(PHONE_APP.exchange(http, code, PHONE_CALLBACK))
            )
            served = await asyncio.gather(
                verify(http, alice["access_token"]),
                AUDITOR.introspect(http, alice["access_token"]),
                PHONE_APP.refresh(http, alice["refresh_token"]),
                WEB_SHOP.revoke(http, shop.pop()["refresh_token"]),
                WEB_SHOP.revoke(http, shop.pop()["access_token"]),
                http.get("/readyz"),
            )
            (login, login_seconds), (exchange, exchange_seconds) = await under_way

            assert [answer.status_code for answer in served] == [200] * len(served), [each.text for each in served]
            assert_error(login, 503, "temporarily_unavailable")
            assert exchange.status_code in (200, 503)  # it needs two answers, or more where little is remembered
            assert max(login_seconds, exchange_seconds) <= LATEST_SECONDS
        proxy.delay_seconds = 0
    assert not any(deployment.knows_access_token(tokens["access_token"]) for tokens in shop)
