"""An outage of Redis during a login at a provider: the login fails for now, and a retry of the callback succeeds."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator

import httpx2
import pytest
import yaml

from service.registry.seed_file.read import parse_seed
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving
from tests.realms.login_steps import log_in_at_provider, log_in_with_password, start_login
from tests.support.browser import SESSIONS, Browser, assert_refused, is_consent_page
from tests.support.clients_and_users import assert_error
from tests.support.fake_provider import PASSWORD, TOKEN, USERNAME, FakeProvider, realm_of
from tests.support.loop_time import LoopTime
from tests.support.servers import RedisServer
from tests.support.waiting import until_status


@pytest.fixture
async def http_on_own_redis(
    own_redis: RedisServer, make_settings: MakeSettings, clock: Clock, provider: FakeProvider
) -> AsyncIterator[httpx2.AsyncClient]:
    """The service with realm `cep`, on a Redis that the test may stop."""
    settings = make_settings(REDIS_URL=own_redis.url)
    worker = Worker(settings, lambda: clock.offset_ms)
    await worker.seeding.apply(parse_seed(yaml.safe_dump({"realms": {"cep": realm_of(provider)}}).encode()))
    await worker.close()
    async with serving(settings, clock) as http:
        yield http


@pytest.mark.clause("decided-redis-away", "decided-i8-fail-closed", "decided-external-state")
async def test_who_comes_back_while_redis_hangs_may_come_back_once_more(
    http_on_own_redis: httpx2.AsyncClient, own_redis: RedisServer, provider: FakeProvider, held_time: LoopTime
) -> None:
    browser = Browser(http_on_own_redis)
    path = await log_in_at_provider(await start_login(browser))
    own_redis.process.send_signal(signal.SIGSTOP)
    assert_refused_for_now(await held_time.advance_until_done(browser.open(path)))
    assert provider.calls(TOKEN) == []
    assert "ts_session" not in browser.cookie_values

    own_redis.process.send_signal(signal.SIGCONT)
    await until_status(lambda: held_time.advance_until_done(http_on_own_redis.get("/readyz")), 200)
    assert is_consent_page(await browser.open(path))


@pytest.mark.clause("decided-redis-away", "decided-i8-fail-closed")
async def test_nobody_is_sent_to_a_provider_and_no_password_either(
    http_on_own_redis: httpx2.AsyncClient, own_redis: RedisServer, provider: FakeProvider, held_time: LoopTime
) -> None:
    own_redis.process.send_signal(signal.SIGSTOP)

    assert_refused_for_now(await held_time.advance_until_done(Browser(http_on_own_redis).open(SESSIONS)))
    answer = await held_time.advance_until_done(log_in_with_password(http_on_own_redis, USERNAME, PASSWORD))
    assert_error(answer, 503, "temporarily_unavailable")
    assert provider.requests == []


def assert_refused_for_now(response: httpx2.Response) -> None:
    assert_refused(response, 503, "busy")
    assert int(response.headers["retry-after"]) >= 1
