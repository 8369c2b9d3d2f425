"""A Redis that answers late: what takes one or two answers is served, what takes more is 503 in time."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from service.app import Parts
from tests.cast import (
    ALICE,
    AUDITOR,
    PHONE_APP,
    PHONE_CALLBACK,
    WEB_SHOP,
    assert_error,
    tokens_of,
    verify,
)
from tests.conftest import make_code
from tests.faults.stage import Stage, measure
from tests.waiting import until_status

ANSWER_SECONDS = 0.6
LATEST_SECONDS = 2.0
BACK_SECONDS = 5.0
ROUNDS = 2


@pytest.mark.clause("decided-redis-away", "decided-i8-one-deadline", "decided-i8-fail-closed")
async def test_a_redis_that_answers_late_is_no_outage(stage: Stage, parts: Parts, beyond: httpx2.AsyncClient) -> None:
    """All connections are made anew while it is slow. A login needs more answers than there is time for."""
    alice = tokens_of(await PHONE_APP.log_in(beyond, ALICE))
    shop = [tokens_of(await WEB_SHOP.log_in(beyond, ALICE)) for _ in range(2 * ROUNDS)]
    for _ in range(3):  # from then on the worker knows this client's secret
        await AUDITOR.introspect(beyond, alice["access_token"])
    stage.proxy.delay = lambda _: ANSWER_SECONDS
    stage.proxy.cut()
    for ask in (
        lambda: PHONE_APP.refresh(beyond, alice["refresh_token"]),
        lambda: verify(beyond, alice["access_token"]),
        lambda: AUDITOR.introspect(beyond, alice["access_token"]),
        lambda: WEB_SHOP.revoke(beyond, "nothing"),
    ):
        await until_status(ask, 200)

    for _ in range(ROUNDS):
        code = await make_code(parts)
        under_way = asyncio.gather(
            measure(PHONE_APP.log_in(beyond, ALICE)), measure(PHONE_APP.exchange(beyond, code, PHONE_CALLBACK))
        )
        served = await asyncio.gather(
            verify(beyond, alice["access_token"]),
            AUDITOR.introspect(beyond, alice["access_token"]),
            PHONE_APP.refresh(beyond, alice["refresh_token"]),
            WEB_SHOP.revoke(beyond, shop.pop()["refresh_token"]),
            WEB_SHOP.revoke(beyond, shop.pop()["access_token"]),
            beyond.get("/readyz"),
        )
        (login, login_seconds), (exchange, exchange_seconds) = await under_way

        assert [answer.status_code for answer in served] == [200] * len(served), [each.text for each in served]
        assert_error(login, 503, "temporarily_unavailable")
        assert exchange.status_code in (200, 503)  # it needs two answers, or more where little is remembered
        assert max(login_seconds, exchange_seconds) < LATEST_SECONDS
    assert not any(stage.knows_access_token(tokens["access_token"]) for tokens in shop)
