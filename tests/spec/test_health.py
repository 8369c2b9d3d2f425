"""GET /healthz and /readyz over HTTP: the process lives; its Redis runs our scripts and evicts nothing."""

from __future__ import annotations

import asyncio
import time

import httpx2
import pytest
import redis

from tests.cast import ALICE, PHONE_APP


@pytest.mark.clause("decided-healthz", "decided-readyz")
@pytest.mark.parametrize("address", ["/healthz", "/readyz"])
async def test_a_service_with_a_sound_redis_is_alive_and_ready(http: httpx2.AsyncClient, address: str) -> None:
    response = await http.get(address)

    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.clause("decided-readyz-eviction")
@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "volatile-lru"])
async def test_a_redis_that_may_evict_keys_is_not_ready(
    http: httpx2.AsyncClient, store: redis.Redis, policy: str
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
    assert (await http.get("/readyz")).status_code == 200


@pytest.mark.clause("decided-readyz")
async def test_a_redis_that_answers_a_ping_and_runs_no_script_is_not_ready(
    http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    store.acl_setuser("default", enabled=True, commands=["-eval", "-evalsha"])
    try:
        pong, unready = store.ping(), await http.get("/readyz")
    finally:
        store.acl_setuser("default", enabled=True, categories=["+@all"])

    assert pong
    assert unready.status_code == 503
    assert (await http.get("/readyz")).status_code == 200


@pytest.mark.clause("decided-emptied-redis")
async def test_a_redis_that_was_emptied_is_not_ready_until_the_seed_is_back(
    http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
    store.flushall()
    unready = await http.get("/readyz")

    assert (unready.status_code, unready.content) == (503, b'{"status":"the seed file is not applied"}')
    deadline = time.monotonic() + 20
    while (await http.get("/readyz")).status_code != 200:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
