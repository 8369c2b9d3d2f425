"""An outage of Redis during a login at a provider, and the security events of such logins."""

import io
import signal
from collections.abc import AsyncIterator

import httpx2
import pytest
import yaml

from service.registry.seed_file.read import parse_seed
from service.store.attempts import Counter
from service.store.keys import address_key
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving
from tests.realms.login_steps import log_in_at_provider, log_in_through_cep, log_in_with_password, start_login
from tests.support.browser import SESSION_COOKIE, Browser, assert_refused, is_consent_page
from tests.support.clients_and_users import PHONE_APP
from tests.support.events import events_of
from tests.support.fake_provider import CLAIMS, PASSWORD, TOKEN, USERNAME, FakeProvider, realm_of
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
async def test_callback_during_an_outage_can_be_repeated(
    http_on_own_redis: httpx2.AsyncClient, own_redis: RedisServer, provider: FakeProvider, held_time: LoopTime
) -> None:
    browser = Browser(http_on_own_redis)
    path = await log_in_at_provider(await start_login(browser))
    own_redis.process.send_signal(signal.SIGSTOP)
    assert_refused_for_now(await held_time.advance_until_done(browser.open(path)))
    assert provider.calls(TOKEN) == []
    assert SESSION_COOKIE not in browser.cookie_values

    own_redis.process.send_signal(signal.SIGCONT)
    await until_status(lambda: held_time.advance_until_done(http_on_own_redis.get("/readyz")), 200)
    assert is_consent_page(await browser.open(path))


def assert_refused_for_now(response: httpx2.Response) -> None:
    assert_refused(response, 503, "busy")
    assert int(response.headers["retry-after"]) >= 1


ADDRESS = "203.0.113.7"
AT_CEP = {"client_id": PHONE_APP.client_id, "realm": "cep", "address": ADDRESS}


@pytest.mark.clause("spec-6-events", "6819-5.1.3-event-log")
async def test_login_event_has_the_name_from_the_provider(cep: None, browser: Browser, json_logs: io.StringIO) -> None:
    await log_in_through_cep(browser)

    assert events_of(json_logs) == [("login_succeeded", AT_CEP | {"username": CLAIMS["sub"]})]


@pytest.mark.clause("decided-typed-names-not-recorded")
async def test_provider_password_grant_ignores_the_typed_name(
    cep: None, http: httpx2.AsyncClient, json_logs: io.StringIO
) -> None:
    await log_in_with_password(http, USERNAME, "a wrong password")
    assert events_of(json_logs) == [("login_failed", AT_CEP | {"reason": "password_wrong"})]

    await log_in_with_password(http, USERNAME, PASSWORD)
    assert [(event, fields["username"]) for event, fields in events_of(json_logs)] == [
        ("login_succeeded", CLAIMS["sub"]),
        ("tokens_issued", CLAIMS["sub"]),
    ]


async def test_address_with_many_refused_logins_is_reported(
    cep: None, worker: Worker, http: httpx2.AsyncClient, json_logs: io.StringIO
) -> None:
    counter = Counter(address_key("refused", ADDRESS, "cep"), 100, 60_000)
    for _ in range(100):
        await worker.attempts.count([counter])
    await log_in_with_password(http, USERNAME, PASSWORD)

    assert events_of(json_logs) == [("login_throttled", AT_CEP | {"reason": "provider_throttled"})]
