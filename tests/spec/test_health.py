"""GET /healthz and /readyz over HTTP: the process lives, and its Redis runs our scripts and evicts nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
import redis
from starlette.types import ASGIApp, Receive, Scope, Send

from service.app import build_app
from service.config.settings import Settings
from service.redis_client.deadline import DEADLINE_SECONDS
from service.web.api.health import REMEMBERED_SECONDS, HealthEndpoint
from service.web.request.state import ENDING
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, http_client_for, running_lifespan, serving
from tests.support.clients_and_users import ALICE, PHONE_APP
from tests.support.loop_time import STEP_SECONDS, LoopTime
from tests.support.servers import RedisServer
from tests.support.waiting import until_status

AT_ONCE = 200
FOREVER_SECONDS = 3600.0


@asynccontextmanager
async def serving_with_cached_readyz(settings: Settings, seconds: float) -> AsyncIterator[ASGIApp]:
    """Run the service with another time for which it remembers a result of /readyz."""
    worker = Worker(settings)
    worker.health = HealthEndpoint(
        worker.redis,
        worker.bearer,
        worker.bearer_counts,
        worker.clients,
        worker.secret_keys,
        worker.seed_keeper,
        remembered_seconds=seconds,
    )
    app = build_app(worker)
    async with running_lifespan(app):
        yield app


async def await_status(http: httpx2.AsyncClient, held_time: LoopTime, status: int) -> None:
    """Wait until /readyz answers with this status. Each request comes after the remembered result has expired."""

    async def probe_readyz() -> httpx2.Response:
        response = await held_time.advance_until_done(http.get("/readyz"))
        held_time.advance(REMEMBERED_SECONDS)
        return response

    await until_status(probe_readyz, status)


@pytest.mark.clause("decided-healthz", "decided-readyz")
@pytest.mark.parametrize("address", ["/healthz", "/readyz"])
async def test_service_with_a_healthy_redis_is_ready(http: httpx2.AsyncClient, address: str) -> None:
    response = await http.get(address)

    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.clause("decided-readyz-eviction")
@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_evicting_redis_is_not_ready(
    http: httpx2.AsyncClient, held_time: LoopTime, store: redis.Redis, policy: str
) -> None:
    store.config_set("maxmemory-policy", policy)
    try:
        unready, alive = await http.get("/readyz"), await http.get("/healthz")
    finally:
        store.config_set("maxmemory-policy", "noeviction")

    assert unready.status_code == 503
    assert int(unready.headers["retry-after"]) >= 1
    assert policy in unready.text
    assert alive.status_code == 200
    await await_status(http, held_time, 200)


@pytest.mark.clause("decided-readyz")
async def test_redis_without_scripts_is_not_ready(
    http: httpx2.AsyncClient, held_time: LoopTime, store: redis.Redis
) -> None:
    store.acl_setuser("default", enabled=True, commands=["-eval", "-evalsha"])
    try:
        pong, unready = store.ping(), await http.get("/readyz")
    finally:
        store.acl_setuser("default", enabled=True, categories=["+@all"])

    assert pong
    assert unready.status_code == 503
    await await_status(http, held_time, 200)


@pytest.mark.clause("decided-emptied-redis")
async def test_emptied_redis_is_not_ready_before_the_seed(
    http: httpx2.AsyncClient, held_time: LoopTime, store: redis.Redis
) -> None:
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
    store.flushall()
    unready = await http.get("/readyz")

    assert unready.status_code == 503
    assert unready.json() == {"status": "the seed file is not loaded yet", "done": 0, "of": 0}
    await await_status(http, held_time, 200)
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200


# The cost of probes


@pytest.mark.clause("decided-readyz-remembered", "decided-redis-away")
async def test_concurrent_probes_share_one_wait(
    held_time: LoopTime, make_settings: MakeSettings, own_redis: RedisServer
) -> None:
    async with (
        serving_with_cached_readyz(make_settings(REDIS_URL=own_redis.url), 0) as app,
        http_client_for(app) as http,
    ):
        await http.get("/readyz")
        with own_redis.frozen():
            probes = [asyncio.create_task(http.get("/readyz")) for _ in range(AT_ONCE)]
            await held_time.advance_in_steps(DEADLINE_SECONDS + STEP_SECONDS)
            late = [probe for probe in probes if not probe.done()]
        await await_status(http, held_time, 200)

    assert late == []
    assert {probe.result().status_code for probe in probes} == {503}


@pytest.mark.clause("decided-readyz-remembered")
async def test_readiness_reports_an_outage_within_half_a_second(
    held_time: LoopTime, make_settings: MakeSettings, clock: Clock, own_redis: RedisServer
) -> None:
    async with serving(make_settings(REDIS_URL=own_redis.url), clock) as http:
        assert (await http.get("/readyz")).status_code == 200
        own_redis.kill()
        held_time.advance(REMEMBERED_SECONDS - STEP_SECONDS)
        assert (await http.get("/readyz")).status_code == 200
        held_time.advance(STEP_SECONDS)
        began = held_time.read()
        response = await held_time.advance_until_done(http.get("/readyz"))
        passed = held_time.read() - began

    assert REMEMBERED_SECONDS == 0.5
    assert response.status_code == 503
    assert passed <= DEADLINE_SECONDS + STEP_SECONDS


@pytest.mark.clause("decided-readyz-remembered")
async def test_shutdown_overrides_the_cached_readiness(make_settings: MakeSettings, registry: None) -> None:
    async with serving_with_cached_readyz(make_settings(), FOREVER_SECONDS) as app:

        async def ending(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "state": {ENDING: True}}, receive, send)

        async with http_client_for(app) as before, http_client_for(ending) as after:
            assert (await before.get("/readyz")).status_code == 200
            assert (await after.get("/readyz")).status_code == 503
