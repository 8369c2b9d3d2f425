"""Outages of Redis: the latency of errors, and the recovery time of the service and of the gateway's library.

Redis is killed, frozen, or cut off by a network that passes no data.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import httpx2

from benchmarks.in_process import logging_to
from benchmarks.load import LoadFailed
from benchmarks.results import Rows
from benchmarks.testbed import Testbed
from service.crypto.keyring import make_access_token
from service.gateway import BearerLookup, StoreUnavailable
from tests.conftest import make_code
from tests.faults.deployment import Deployment, http_client_for, start_sessions, worker_on
from tests.faults.proxy import running_proxy
from tests.support.clients_and_users import (
    ALICE,
    AUDITOR,
    BOB,
    MADE_SECRET,
    PHONE_APP,
    PHONE_CALLBACK,
    READER,
    WEB_SHOP,
    revoke_all,
    tokens_of,
    verify,
)
from tests.support.servers import ServiceProcess
from tests.support.waiting import until_status

REFUSED, FLOOD = "503 while Redis is away, the slowest request", "503 while Redis is away, many requests at once"
BACK = "the service is back after Redis"
LIBRARY_REFUSED = "gateway's library, an error while Redis is away"
LIBRARY_BACK = "gateway's library is back after Redis"
OUTAGES = {"killed": "killed", "frozen": "frozen", "cut off": "cut_off"}
CONCURRENT_REQUESTS, CONCURRENT_LOOKUPS = 100, 500
SPACED_LOGINS, INTERVAL_SECONDS = 40, 0.05
"""Logins at this interval. The first reaches its deadline before the last is sent."""
PAUSE_SECONDS = 0.005

SendRequest = Callable[[], Awaitable[httpx2.Response]]


def measure_outages(testbed: Testbed, rounds: int) -> Rows:
    """Return seconds."""
    deployment = testbed.deployment
    rows: Rows = {}
    with (
        logging_to(testbed.folder / "outages.log"),
        running_proxy(deployment.redis.port) as deployment.proxy,
        testbed.running() as deployment.direct_service,
        testbed.running(REDIS_URL=deployment.proxy.url) as deployment.proxied_service,
    ):
        for _ in range(rounds):
            for name, outage in OUTAGES.items():
                asyncio.run(_measure_outage(deployment, name, outage, rows))
            for name in ("killed", "frozen"):
                asyncio.run(_measure_library(deployment, name, rows))
            asyncio.run(_measure_library_cut_off(deployment, rows))
    return rows


def _add_value(rows: Rows, row: str, part: str, value: float) -> None:
    rows.setdefault(row, {}).setdefault(part, []).append(value)


async def _measure_outage(deployment: Deployment, name: str, outage: str, rows: Rows) -> None:
    service: ServiceProcess = deployment.proxied_service if outage == "cut_off" else deployment.direct_service
    async with http_client_for(service) as http:
        await until_status(lambda: http.get("/readyz"), 200)  # recovers from the previous outage
        await until_status(lambda: PHONE_APP.log_in(http, ALICE), 200)
        alice, bob = tokens_of(await PHONE_APP.log_in(http, ALICE)), tokens_of(await WEB_SHOP.log_in(http, BOB))
        refresh = lambda: PHONE_APP.refresh(http, alice["refresh_token"])  # noqa: E731 - used twice
        async with worker_on(deployment) as worker:
            code = await make_code(worker)
        requests: Sequence[SendRequest] = (
            lambda: PHONE_APP.log_in(http, ALICE),
            lambda: READER.log_in(http, ALICE),
            refresh,
            lambda: MADE_SECRET.refresh(http, alice["refresh_token"]),
            lambda: PHONE_APP.exchange(http, code, PHONE_CALLBACK),
            lambda: WEB_SHOP.revoke(http, bob["refresh_token"]),
            lambda: WEB_SHOP.revoke(http, bob["access_token"]),
            lambda: revoke_all(http, bob["access_token"]),
            lambda: verify(http, bob["access_token"]),
            lambda: AUDITOR.introspect(http, bob["access_token"]),
            lambda: AUDITOR.introspect(http, bob["refresh_token"]),
        )
        with getattr(deployment, outage)():
            _add_value(rows, REFUSED, name, await _time_refusals(requests))
            _add_value(rows, FLOOD, name, await _time_refusals([refresh] * CONCURRENT_REQUESTS))
            spaced = await _time_refusals([lambda: PHONE_APP.log_in(http, ALICE)] * SPACED_LOGINS, INTERVAL_SECONDS)
            _add_value(rows, FLOOD, f"{name}, one after the other", spaced)
        began = time.perf_counter()
        for send in (refresh, lambda: verify(http, alice["access_token"]), lambda: http.get("/readyz")):
            await until_status(send, 200)
        _add_value(rows, BACK, name, time.perf_counter() - began)


async def _time_refusals(requests: Sequence[SendRequest], interval_seconds: float = 0) -> float:
    """Return the seconds until the slowest response. Raises LoadFailed unless each is 503."""

    async def measure_seconds(number: int) -> float:
        await asyncio.sleep(number * interval_seconds)
        began = time.perf_counter()
        if (response := await requests[number]()).status_code != 503:
            raise LoadFailed(f"without Redis a request is answered {response.status_code}")
        return time.perf_counter() - began

    return max(await asyncio.gather(*map(measure_seconds, range(len(requests)))))


# The gateway's library


async def _measure_library(deployment: Deployment, name: str, rows: Rows) -> None:
    async with _cached_token(deployment, deployment.redis.url) as (bearer, token):
        with getattr(deployment, name)():
            _add_value(rows, LIBRARY_REFUSED, name, await _time_refused_lookup(bearer, token))
        began = time.perf_counter()
        while not await _is_live(bearer, token):  # noqa: ASYNC110 - the library reconnects in the background
            await asyncio.sleep(PAUSE_SECONDS)
        _add_value(rows, LIBRARY_BACK, name, time.perf_counter() - began)


async def _measure_library_cut_off(deployment: Deployment, rows: Rows) -> None:
    """Measure many concurrent lookups while the network passes no data."""
    async with _cached_token(deployment, deployment.proxy.url) as (bearer, _):
        with deployment.cut_off():
            lookups = [asyncio.create_task(_time_refused_lookup(bearer)) for _ in range(CONCURRENT_LOOKUPS)]
            _add_value(
                rows, LIBRARY_REFUSED, f"cut off, {CONCURRENT_LOOKUPS} at once", max(await asyncio.gather(*lookups))
            )


@asynccontextmanager
async def _cached_token(deployment: Deployment, url: str) -> AsyncIterator[tuple[BearerLookup, str]]:
    """Yield a lookup and a token in its cache. A token is in the cache from its second use on."""
    async with worker_on(deployment) as worker:
        ((token, _),) = await start_sessions(worker, "carol@example.com", 1)
    async with BearerLookup(url) as bearer:
        for _ in range(2):
            if await bearer.lookup(token) is None:
                raise LoadFailed("a token is not live")
        yield bearer, token


async def _time_refused_lookup(bearer: BearerLookup, cached_token: str = "") -> float:
    """Return the seconds of a lookup that ends in an error. A cached token is looked up until one does."""
    while True:
        started = time.perf_counter()
        try:
            await bearer.lookup(cached_token or make_access_token("0a3").text)
        except StoreUnavailable:
            return time.perf_counter() - started
        await asyncio.sleep(PAUSE_SECONDS)


async def _is_live(bearer: BearerLookup, token: str) -> bool:
    """Return True if the token is live, or False if Redis is still unavailable.

    Raises LoadFailed if Redis does not have the token.
    """
    try:
        found = await bearer.lookup(token)
    except StoreUnavailable:
        return False
    if found is None:
        raise LoadFailed("a token is unknown after an outage")
    return True
