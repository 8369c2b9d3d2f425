"""Processor time of a request in the application, without a server, compared with that of an almost empty route.

The kinds of requests take turns in one process. `operations.py` measures the same operations with a server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message

from benchmarks.in_process import logging_to, running_in_process
from benchmarks.load import LoadFailed
from benchmarks.processes import SERVER_CORE, on_core
from benchmarks.results import WHOLE, Rows
from benchmarks.testbed import Testbed
from tests.support.clients_and_users import ALICE, GATEWAY, INTROSPECT, TOKEN, VERIFY, WEB_SHOP, bearer, tokens_of

ROUTE = "an empty route"
REFRESH = "refresh, in the application / an empty route"
VERIFY_ASKING = "verify, Redis asked, in the application / an empty route"
VERIFY_MEMORY = "verify, from memory, in the application / an empty route"
INTROSPECT_ASKING = "introspect, Redis asked, in the application / an empty route"
CONCURRENT_REQUESTS = 64

RequestScopeAndBody = tuple[dict[str, Any], bytes]


@dataclass(frozen=True)
class _Load:
    """An application, and the request that it gets CONCURRENT_REQUESTS times at once."""

    app: ASGIApp
    request: RequestScopeAndBody

    async def measure(self) -> float:
        """Return the processor time of each request in microseconds."""
        before = time.process_time()
        await asyncio.gather(*(self.serve() for _ in range(CONCURRENT_REQUESTS)))
        return (time.process_time() - before) / CONCURRENT_REQUESTS * 1e6

    async def serve(self) -> None:
        """Send the request once. Raises LoadFailed unless the status is 200."""
        scope, body = self.request

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            if message.get("status", 200) != 200:
                raise LoadFailed(f"{scope['path']} answers {message['status']}")

        await self.app(dict(scope), receive, send)


def measure_costs(testbed: Testbed, rounds: int) -> Rows:
    """Return the ratio of each round."""
    with on_core(SERVER_CORE), logging_to(testbed.folder / "costs.log"):
        return asyncio.run(_measure(testbed, rounds))


async def _measure(testbed: Testbed, rounds: int) -> Rows:
    environment = testbed.deployment.environment()
    async with (
        running_in_process(environment) as (app, http),
        running_in_process(environment | {"TOKEN_SERVICE_VERIFY_CACHE": "on"}) as (cached_app, _),
    ):
        tokens, refreshed = [tokens_of(await WEB_SHOP.log_in(http, ALICE)) for _ in range(2)]
        verify = _make_request("GET", VERIFY, bearer(tokens["access_token"]))
        introspect = _make_post(INTROSPECT, GATEWAY.basic, token=tokens["access_token"])
        # Each repetition of this refresh is within its grace period, so it issues an access token.
        refresh = _make_post(
            TOKEN, WEB_SHOP.basic, grant_type="refresh_token", refresh_token=refreshed["refresh_token"]
        )
        loads = {
            ROUTE: _Load(Starlette(routes=[Route("/", _respond)]), _make_request("GET", "/", {})),
            REFRESH: _Load(app, refresh),
            VERIFY_ASKING: _Load(app, verify),
            VERIFY_MEMORY: _Load(cached_app, verify),
            INTROSPECT_ASKING: _Load(app, introspect),
        }
        for load in loads.values():
            await load.serve()  # hashes the client secret, which is then in the cache
        rows: Rows = {name: {WHOLE: []} for name in loads if name != ROUTE}
        for _ in range(rounds):
            costs = {name: await load.measure() for name, load in loads.items()}
            for name, row in rows.items():
                row[WHOLE].append(costs[name] / costs[ROUTE])
        return rows


async def _respond(_: Request) -> Response:
    return Response(b"{}", media_type="application/json")


def _make_post(path: str, headers: Mapping[str, str], **form: str) -> RequestScopeAndBody:
    content = {"Content-Type": "application/x-www-form-urlencoded"}
    return _make_request("POST", path, {**content, **headers}, urlencode(form).encode())


def _make_request(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> RequestScopeAndBody:
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 50_000),
    }
    return scope, body
