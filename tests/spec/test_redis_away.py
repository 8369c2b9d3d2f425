"""An outage of Redis, over HTTP: no grant, no confirmed revocation, and a response before the deadline."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from typing import Any

import httpx2
import pytest

from service.redis_client.deadline import DEADLINE_SECONDS
from service.web.api.health import REMEMBERED_SECONDS
from tests.conftest import Clock, MakeSettings, serving
from tests.support.clients_and_users import (
    ALICE,
    AUDITOR,
    PHONE_APP,
    WEB_SHOP,
    assert_error,
    revoke_all,
    tokens_of,
    verify,
)
from tests.support.loop_time import STEP_SECONDS, LoopTime
from tests.support.servers import RedisServer, stop
from tests.support.waiting import until_status


@pytest.fixture
async def http_on_own_redis(
    held_time: LoopTime, own_redis: RedisServer, make_settings: MakeSettings, clock: Clock
) -> AsyncIterator[httpx2.AsyncClient]:
    """The service on a Redis that the test may stop."""
    async with serving(make_settings(REDIS_URL=own_redis.url), clock) as http:
        yield http


def assert_unavailable(response: httpx2.Response) -> None:
    assert_error(response, 503, "temporarily_unavailable")
    assert int(response.headers["retry-after"]) >= 1


@pytest.mark.clause("decided-redis-away", "decided-i8-fail-closed", "7009-2.2.1-503", "decided-error-statuses")
async def test_every_answer_that_needs_redis_is_503(
    http_on_own_redis: httpx2.AsyncClient, held_time: LoopTime, own_redis: RedisServer
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http_on_own_redis, ALICE))
    stop(own_redis.process)

    pending_requests = [
        PHONE_APP.log_in(http_on_own_redis, ALICE),
        WEB_SHOP.log_in(http_on_own_redis, ALICE),
        PHONE_APP.refresh(http_on_own_redis, tokens["refresh_token"]),
        PHONE_APP.revoke(http_on_own_redis, tokens["access_token"]),
        PHONE_APP.revoke(http_on_own_redis, tokens["refresh_token"]),
        revoke_all(http_on_own_redis, tokens["access_token"]),
        verify(http_on_own_redis, tokens["access_token"]),
        *(
            AUDITOR.introspect(http_on_own_redis, token)
            for token in (tokens["access_token"], tokens["refresh_token"], "x")
        ),
    ]
    for pending_request in pending_requests:
        response = await held_time.advance_until_done(pending_request)
        assert_unavailable(response)


@pytest.mark.clause("decided-healthz", "decided-readyz")
async def test_the_process_is_alive_without_redis_and_not_ready(
    http_on_own_redis: httpx2.AsyncClient, held_time: LoopTime, own_redis: RedisServer
) -> None:
    stop(own_redis.process)

    assert (await http_on_own_redis.get("/healthz")).status_code == 200
    assert (await held_time.advance_until_done(http_on_own_redis.get("/readyz"))).status_code == 503


@pytest.mark.clause("decided-redis-away", "decided-i8-one-deadline", "decided-i8-fail-closed")
async def test_a_redis_that_hangs_makes_nobody_wait_longer_than_two_seconds(
    http_on_own_redis: httpx2.AsyncClient, held_time: LoopTime, own_redis: RedisServer
) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http_on_own_redis, ALICE))["access_token"]
    with own_redis.frozen():
        began = held_time.read()
        response = await held_time.advance_until_done(WEB_SHOP.log_in(http_on_own_redis, ALICE))
        waited = held_time.read() - began

    assert_unavailable(response)
    assert waited <= DEADLINE_SECONDS + STEP_SECONDS < 2
    await until_status(lambda: ask(held_time, revoke_all(http_on_own_redis, access_token)), 200)


@pytest.mark.clause("decided-i10-outage-is-not-theft", "decided-i8-fail-closed")
async def test_a_session_outlives_the_outage(
    http_on_own_redis: httpx2.AsyncClient, held_time: LoopTime, own_redis: RedisServer
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http_on_own_redis, ALICE))
    with own_redis.frozen():
        assert_unavailable(await ask(held_time, PHONE_APP.refresh(http_on_own_redis, tokens["refresh_token"])))
    await until_status(lambda: ask(held_time, http_on_own_redis.get("/readyz")), 200)

    refreshed = tokens_of(await PHONE_APP.refresh(http_on_own_redis, tokens["refresh_token"]))

    assert refreshed["refresh_token"] != tokens["refresh_token"]
    assert (await PHONE_APP.refresh(http_on_own_redis, refreshed["refresh_token"])).status_code == 200


async def ask(held_time: LoopTime, pending_request: Coroutine[Any, Any, httpx2.Response]) -> httpx2.Response:
    """Return the response, and advance the time until the remembered result of /readyz has expired."""
    response = await held_time.advance_until_done(pending_request)
    held_time.advance(REMEMBERED_SECONDS)
    return response
