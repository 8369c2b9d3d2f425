"""Without Redis, over HTTP: nothing is granted, nothing is said to be revoked, and nobody waits for long."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator

import httpx2
import pytest

from tests.cast import ALICE, AUDITOR, PHONE_APP, WEB_SHOP, assert_error, revoke_all, tokens_of, verify
from tests.conftest import Clock, MakeSettings, serving
from tests.servers import RedisServer, stop


@pytest.fixture
async def frail(own_redis: RedisServer, make_settings: MakeSettings, clock: Clock) -> AsyncIterator[httpx2.AsyncClient]:
    """The service on that server."""
    async with serving(make_settings(REDIS_URL=own_redis.url), clock) as http:
        yield http


def assert_unavailable(response: httpx2.Response) -> None:
    assert_error(response, 503, "temporarily_unavailable")
    assert int(response.headers["retry-after"]) >= 1


@pytest.mark.clause("decided-redis-away", "decided-i8-fail-closed", "7009-2.2.1-503", "decided-error-statuses")
async def test_every_answer_that_needs_redis_is_503(frail: httpx2.AsyncClient, own_redis: RedisServer) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(frail, ALICE))
    stop(own_redis.process)

    assert_unavailable(await PHONE_APP.log_in(frail, ALICE))
    assert_unavailable(await WEB_SHOP.log_in(frail, ALICE))
    assert_unavailable(await PHONE_APP.refresh(frail, tokens["refresh_token"]))
    assert_unavailable(await PHONE_APP.revoke(frail, tokens["access_token"]))
    assert_unavailable(await PHONE_APP.revoke(frail, tokens["refresh_token"]))
    assert_unavailable(await revoke_all(frail, tokens["access_token"]))
    assert_unavailable(await verify(frail, tokens["access_token"]))
    for token in (tokens["access_token"], tokens["refresh_token"], "x"):
        assert_unavailable(await AUDITOR.introspect(frail, token))


@pytest.mark.clause("decided-healthz", "decided-readyz")
async def test_the_process_is_alive_without_redis_and_not_ready(
    frail: httpx2.AsyncClient, own_redis: RedisServer
) -> None:
    stop(own_redis.process)

    assert (await frail.get("/healthz")).status_code == 200
    assert (await frail.get("/readyz")).status_code == 503


@pytest.mark.clause("decided-redis-away", "decided-i8-one-deadline", "decided-i8-fail-closed")
async def test_a_redis_that_hangs_makes_nobody_wait_longer_than_two_seconds(
    frail: httpx2.AsyncClient, own_redis: RedisServer
) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(frail, ALICE))["access_token"]
    own_redis.process.send_signal(signal.SIGSTOP)
    started = time.monotonic()
    response = await WEB_SHOP.log_in(frail, ALICE)
    waited = time.monotonic() - started

    assert_unavailable(response)
    assert waited < 2.5  # two seconds are promised; the rest is for a busy machine
    own_redis.process.send_signal(signal.SIGCONT)
    assert (await revoke_all(frail, access_token)).status_code == 200


@pytest.mark.clause("decided-i10-outage-is-not-theft", "decided-i8-fail-closed")
async def test_a_session_outlives_the_outage(frail: httpx2.AsyncClient, own_redis: RedisServer) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(frail, ALICE))
    own_redis.process.send_signal(signal.SIGSTOP)
    assert_unavailable(await PHONE_APP.refresh(frail, tokens["refresh_token"]))
    own_redis.process.send_signal(signal.SIGCONT)

    refreshed = tokens_of(await PHONE_APP.refresh(frail, tokens["refresh_token"]))

    assert refreshed["refresh_token"] != tokens["refresh_token"]
    assert (await PHONE_APP.refresh(frail, refreshed["refresh_token"])).status_code == 200
