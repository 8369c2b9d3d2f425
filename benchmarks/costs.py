"""Processor time of a request in the application alone, without a server, compared with that of an almost empty route.

The kinds of requests are measured in turns in one process. `operations.py` measures the same behind a server.
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

from benchmarks.arena import Arena
from benchmarks.inside import logging_to, serving_inside
from benchmarks.load import LoadFailed
from benchmarks.processes import SERVER_CORE, on_core
from benchmarks.results import Rows
from service.web.request.state import BODY_IS_COMPLETE
from tests.support.clients_and_users import ALICE, GATEWAY, INTROSPECT, TOKEN, VERIFY, WEB_SHOP, bearer, tokens_of

COSTS = "processor time in the application"
ROUTE, REFRESH, VERIFY_ASKING = "an empty route", "refresh", "verify, Redis asked"
VERIFY_MEMORY, INTROSPECT_ASKING = "verify, from memory", "introspect, Redis asked"
AT_ONCE = 64

Asked = tuple[dict[str, Any], bytes]


@dataclass(frozen=True)
class _Load:
    """An application and a request, which it gets so many times at once."""

    app: ASGIApp
    request: Asked

    async def measure(self) -> float:
        """Return microseconds of the processor for each request."""
        before = time.process_time()
        await asyncio.gather(*(self.serve() for _ in range(AT_ONCE)))
        return (time.process_time() - before) / AT_ONCE * 1e6

    async def serve(self) -> None:
        """Raises LoadFailed unless the answer is 200."""
        scope, body = self.request

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            if message.get("status", 200) != 200:
                raise LoadFailed(f"{scope['path']} answers {message['status']}")

        await self.app(dict(scope), receive, send)


def measure_costs(arena: Arena, rounds: int) -> Rows:
    """Microseconds; the least of all rounds counts."""
    with on_core(SERVER_CORE), logging_to(arena.folder / "costs.log"):
        return {COSTS: asyncio.run(_measure(arena, rounds))}


async def _measure(arena: Arena, rounds: int) -> dict[str, list[float]]:
    environment = arena.deployment.environment()
    async with (
        serving_inside(environment) as (app, http),
        serving_inside(environment | {"TOKEN_SERVICE_VERIFY_CACHE": "on"}) as (remembering, _),
    ):
        one, other = [tokens_of(await WEB_SHOP.log_in(http, ALICE)) for _ in range(2)]
        verify = _make_request("GET", VERIFY, bearer(one["access_token"]))
        introspect = _make_post(INTROSPECT, GATEWAY.basic, token=one["access_token"])
        # Within the grace each of them buys an access token, again and again.
        refresh = _make_post(TOKEN, WEB_SHOP.basic, grant_type="refresh_token", refresh_token=other["refresh_token"])
        loads = {
            ROUTE: _Load(Starlette(routes=[Route("/", _answer)]), _make_request("GET", "/", {})),
            REFRESH: _Load(app, refresh),
            VERIFY_ASKING: _Load(app, verify),
            VERIFY_MEMORY: _Load(remembering, verify),
            INTROSPECT_ASKING: _Load(app, introspect),
        }
        for load in loads.values():
            await load.serve()  # a secret is hashed once, and remembered
        costs: dict[str, list[float]] = {name: [] for name in loads}
        for _ in range(rounds):
            for name, load in loads.items():
                costs[name].append(await load.measure())
        return costs


async def _answer(_: Request) -> Response:
    return Response(b"{}", media_type="application/json")


def _make_post(path: str, headers: Mapping[str, str], **form: str) -> Asked:
    content = {"Content-Type": "application/x-www-form-urlencoded"}
    return _make_request("POST", path, {**content, **headers}, urlencode(form).encode())


def _make_request(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Asked:
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 50_000),
        BODY_IS_COMPLETE.name: True,
    }
    return scope, body
