"""GET /metrics: access to it, and the values that it counts."""

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest
import redis

from service.app import build_app
from service.crypto.hashing_pool import HashingPool
from service.protocol.errors import DESCRIPTIONS, TemporarilyUnavailable
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, http_client_for, make_code, running_lifespan, serving
from tests.support.browser import authorization_url
from tests.support.clients_and_users import (
    ALICE,
    AUDITOR,
    PHONE_APP,
    PHONE_CALLBACK,
    REVOKE,
    SHOP_CALLBACK,
    TOKEN,
    VERIFY,
    WEB_SHOP,
    OAuthClient,
    UserCredentials,
    basic,
    bearer,
    tokens_of,
    verify,
)
from tests.support.loop_time import LoopTime
from tests.support.metrics_scrape import Scrape
from tests.support.waiting import result_of, until_true

METRICS = "/metrics"
STRANGER = "203.0.113.7"


@pytest.fixture
async def local_http(make_settings: MakeSettings, clock: Clock, registry: None) -> AsyncIterator[httpx2.AsyncClient]:
    """The service with the default settings, called from its own machine."""
    async with serving(make_settings(), clock, address="127.0.0.1") as http:
        yield http


async def scrape(local_http: httpx2.AsyncClient) -> Scrape:
    response = await local_http.get(METRICS)
    assert response.status_code == 200, response.text
    return Scrape(response.text)


class MetricsIncrease:
    """The increase of metrics during a test. Other tests in this process have counted before."""

    def __init__(self, before: Scrape, after: Scrape) -> None:
        self._before, self._after = before, after

    def of(self, name: str, **labels: str) -> float:
        return self._after.sum(name, **labels) - self._before.sum(name, **labels)


# Access


@pytest.mark.clause("decided-metrics")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
async def test_this_machine_may(make_settings: MakeSettings, clock: Clock, registry: None, address: str) -> None:
    async with serving(make_settings(), clock, address=address) as http:
        response = await http.get(METRICS)
        wrong = await http.post(METRICS)

        assert response.status_code == 200
        assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert response.headers["cache-control"] == "no-store"
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.clause("decided-metrics")
@pytest.mark.parametrize("address", [STRANGER, "::ffff:10.0.0.1"])
async def test_metrics_are_404_for_other_callers(
    make_settings: MakeSettings, clock: Clock, registry: None, address: str
) -> None:
    forwarded = {"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1"}
    async with serving(make_settings(), clock, address=address) as http:
        unknown = await http.get("/no-such-path")
        for headers in ({}, forwarded):
            response = await http.get(METRICS, headers=headers)
            assert response.status_code == unknown.status_code == 404
            assert (response.content, response.headers) == (unknown.content, unknown.headers)


@pytest.mark.clause("decided-metrics", "decided-trusted-proxies")
async def test_limits_behind_a_trusted_proxy_count_the_caller(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    settings = make_settings(TOKEN_SERVICE_TRUSTED_PROXIES="127.0.0.1,10.0.0.0/8")
    app = build_app(Worker(settings, lambda: clock.offset_ms))
    async with (
        running_lifespan(app),
        http_client_for(app, "127.0.0.1") as near,
        http_client_for(app, "10.0.0.1") as far,
    ):
        for proxy in (near, far):
            for hops in (STRANGER, f"127.0.0.1, {STRANGER}", f"{STRANGER}, 10.0.0.2"):
                assert (await proxy.get(METRICS, headers={"X-Forwarded-For": hops})).status_code == 404
            assert (await proxy.get(METRICS, headers={"X-Forwarded-For": "127.0.0.1"})).status_code == 200
        assert (await near.get(METRICS)).status_code == 200
        assert (await far.get(METRICS)).status_code == 404


@pytest.mark.clause("decided-metrics")
async def test_metrics_with_own_address_are_404_here(make_settings: MakeSettings, clock: Clock, registry: None) -> None:
    settings = make_settings(TOKEN_SERVICE_METRICS_ADDRESS="127.0.0.1:9100")
    async with serving(settings, clock, address="127.0.0.1") as http:
        assert (await http.get(METRICS)).status_code == 404
        assert (await http.post(METRICS)).status_code == 404


# Counters


async def test_requests_are_counted_by_endpoint_grant_and_outcome(local_http: httpx2.AsyncClient) -> None:
    before = await scrape(local_http)
    tokens = tokens_of(await PHONE_APP.log_in(local_http, ALICE))
    for _ in range(3):
        await PHONE_APP.refresh(local_http, tokens["refresh_token"])
    await PHONE_APP.log_in(local_http, UserCredentials(ALICE.username, "wrong"))
    await local_http.post(TOKEN, data={"grant_type": "password"}, headers=basic("nobody", "x"))
    await verify(local_http, tokens["access_token"])
    await verify(local_http, "x" * 50)
    increase = MetricsIncrease(before, await scrape(local_http))

    requests = "token_service_requests_total"
    assert increase.of(requests, endpoint="token", grant="password", outcome="ok") == 1
    assert increase.of(requests, endpoint="token", grant="password", outcome="rejected") == 2
    assert increase.of(requests, endpoint="token", grant="refresh_token", outcome="ok") == 3
    assert increase.of(requests, endpoint="verify", grant="none", outcome="ok") == 1
    assert increase.of(requests, endpoint="verify", grant="none", outcome="rejected") == 1
    refusals = "token_service_rejections_total"
    assert increase.of(refusals, endpoint="token", reason="password_wrong") == 1
    assert increase.of(refusals, endpoint="token", reason="client_unknown") == 1
    assert increase.of("token_service_request_duration_seconds_count", endpoint="token") == 6
    assert increase.of("token_service_redis_call_duration_seconds_count", call="spend_refresh_token") == 3
    assert increase.of("token_service_redis_call_duration_seconds_count", call="lookup") == 1
    assert increase.of("token_service_cache_lookups_total", cache="bearers") == 2
    assert increase.of("token_service_cache_misses_total", cache="bearers") == 1
    assert increase.of("token_service_cache_lookups_total", cache="clients") >= 6
    assert 1 <= increase.of("token_service_cache_misses_total", cache="clients") < 6
    assert increase.of("token_service_hashing_wait_seconds_count", pool="password") == 2


@pytest.mark.clause("decided-metrics-by-client")
async def test_tokens_and_refusals_are_counted_by_client(local_http: httpx2.AsyncClient) -> None:
    before = await scrape(local_http)
    tokens = tokens_of(await WEB_SHOP.log_in(local_http, ALICE))
    await WEB_SHOP.refresh(local_http, tokens["refresh_token"])
    await WEB_SHOP.introspect(local_http, tokens["access_token"])
    await WEB_SHOP.log_in(local_http, UserCredentials(ALICE.username, "wrong"))
    await local_http.post(REVOKE, data={"token": "x"}, headers=basic(WEB_SHOP.client_id, "wrong"))
    await local_http.post(REVOKE, data=WEB_SHOP.credentials | {"token": "x"})
    await local_http.get(authorization_url(WEB_SHOP, SHOP_CALLBACK, scope="role:god"))
    await local_http.get(authorization_url(WEB_SHOP, "https://elsewhere.example"))
    await local_http.get(authorization_url(OAuthClient("nobody"), SHOP_CALLBACK))
    after = await scrape(local_http)
    increase = MetricsIncrease(before, after)

    issued, refused = "token_service_client_tokens_issued_total", "token_service_client_rejections_total"
    assert increase.of(issued) == 2
    for grant in ("password", "refresh_token"):
        assert increase.of(issued, client_id=WEB_SHOP.client_id, grant=grant) == 1
    assert increase.of(refused) == increase.of(refused, client_id=WEB_SHOP.client_id, outcome="rejected") == 5
    assert not {"nobody", ""} & (after.label_values(issued, "client_id") | after.label_values(refused, "client_id"))


async def test_throttled_is_an_outcome_of_its_own(make_settings: MakeSettings, clock: Clock, registry: None) -> None:
    settings = make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS="1/minute")
    async with serving(settings, clock, address="127.0.0.1") as local_http:
        before = await scrape(local_http)
        for _ in range(3):
            await PHONE_APP.log_in(local_http, UserCredentials(ALICE.username, "wrong"))
        increase = MetricsIncrease(before, await scrape(local_http))

    assert increase.of("token_service_requests_total", endpoint="token", outcome="throttled") == 2
    assert increase.of("token_service_rejections_total", endpoint="token", reason="login_throttled") == 2


async def test_metrics_count_outcomes_of_tokens_and_codes(
    local_http: httpx2.AsyncClient, worker: Worker, clock: Clock
) -> None:
    before = await scrape(local_http)
    first = tokens_of(await PHONE_APP.log_in(local_http, ALICE))["refresh_token"]
    await PHONE_APP.refresh(local_http, first)
    await PHONE_APP.refresh(local_http, first)
    clock.advance(301)
    await PHONE_APP.refresh(local_http, first)
    code = await make_code(worker)
    for _ in range(2):
        await PHONE_APP.exchange(local_http, code, PHONE_CALLBACK)
    increase = MetricsIncrease(before, await scrape(local_http))

    presented = "token_service_refresh_tokens_presented_total"
    verdicts = {verdict: increase.of(presented, verdict=verdict) for verdict in ("rotated", "repeated", "replayed")}
    assert verdicts == {"rotated": 1, "repeated": 1, "replayed": 1}
    assert increase.of("token_service_code_replays_total") == 1


async def test_a_redis_that_cannot_serve_is_counted(local_http: httpx2.AsyncClient, store: redis.Redis) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(local_http, ALICE))
    before = await scrape(local_http)
    store.config_set("maxmemory", 1)
    await PHONE_APP.refresh(local_http, tokens["refresh_token"])
    store.config_set("maxmemory", 0)
    increase = MetricsIncrease(before, await scrape(local_http))

    assert increase.of("token_service_requests_total", grant="refresh_token", outcome="unavailable") == 1
    assert increase.of("token_service_redis_failures_total", call="spend_refresh_token") == 1


async def test_metrics_count_refused_and_waiting_hash_checks(
    local_http: httpx2.AsyncClient, held_time: LoopTime
) -> None:
    pool = HashingPool("password", threads=1)
    loop = asyncio.get_running_loop()
    go_on = asyncio.Event()
    before = await scrape(local_http)

    def hold(_: str) -> None:
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

    late = [asyncio.create_task(pool.run(hold, "")) for _ in range(3)]
    await held_time.advance_in_steps(2)
    checks = [late.pop(0), *(asyncio.create_task(pool.run(hold, "")) for _ in range(5))]
    await asyncio.sleep(0)
    during = MetricsIncrease(before, await result_of(scrape(local_http)))
    await held_time.advance_in_steps(1)
    go_on.set()
    await asyncio.gather(*checks)
    for refused in late:
        assert isinstance(refused.exception(), TemporarilyUnavailable)
    after = MetricsIncrease(before, await scrape(local_http))
    pool.close()

    assert during.of("token_service_hashing_checks", pool="password") == 8
    assert after.of("token_service_hashing_checks", pool="password") == 0
    assert after.of("token_service_hashing_rejections_total", pool="password") == 2
    assert after.of("token_service_hashing_wait_seconds_count", pool="password") == 6


async def test_session_gauges_are_set_at_the_start(
    local_http: httpx2.AsyncClient, make_settings: MakeSettings, clock: Clock
) -> None:
    first = tokens_of(await PHONE_APP.log_in(local_http, ALICE))
    await PHONE_APP.refresh(local_http, first["refresh_token"])
    await WEB_SHOP.log_in(local_http, ALICE)

    async with serving(make_settings(), clock, address="127.0.0.1") as http:

        async def are_counted() -> bool:
            return (await scrape(http)).sum("token_service_stored_objects", kind="session") == 2

        await until_true(are_counted, "the first census")
        found = await scrape(http)
        assert found.sum("token_service_stored_objects", kind="access_token") == 3
        assert found.sum("token_service_redis_memory_bytes") > 0
        assert found.sum("token_service_redis_memory_limit_bytes") == 0


async def test_nothing_that_a_caller_sends_becomes_a_label(local_http: httpx2.AsyncClient) -> None:
    """Labels chosen by callers could fill the memory of the service and of Prometheus."""
    await scrape(local_http)
    series_before = len((await scrape(local_http)).samples)
    for number in range(50):
        odd = f"tell-nobody-{number}"
        for path in (f"/{odd}", f"{TOKEN}/{odd}", f"{odd}{TOKEN}", f"/.well-known/{odd}"):
            await local_http.get(path)
        await local_http.request(f"TELL{number}", TOKEN)
        await local_http.request(f"TELL{number}", VERIFY, headers=bearer(odd))
        await local_http.post(TOKEN, data={"grant_type": odd, "client_id": odd})
        await local_http.post(REVOKE, data=AUDITOR.credentials | {"token": odd, "client_id": odd})
        await local_http.options(
            TOKEN, headers={"Origin": f"https://{odd}.example", "Access-Control-Request-Method": odd}
        )
    after = await scrape(local_http)

    assert "tell" not in (await local_http.get(METRICS)).text.lower()
    assert len(after.samples) < series_before + 100
    assert after.label_values("token_service_requests_total", "grant") <= {
        "none",
        "authorization_code",
        "password",
        "refresh_token",
    }
    assert after.label_values("token_service_requests_total", "outcome") <= {
        "ok",
        "rejected",
        "throttled",
        "unavailable",
        "failed",
    }
    reasons = after.label_values("token_service_rejections_total", "reason")
    assert {"unknown_path", "method_not_allowed", "client_unknown"} <= reasons & DESCRIPTIONS.keys()
