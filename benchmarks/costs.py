"""Processor time and instructions of a request in the application, without a server, and those of an empty route.

The kinds of requests take turns in one process. `operations.py` measures the same operations with a server. Valgrind
counts the instructions, which depend on neither the machine nor its load.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message

from benchmarks.in_process import logging_to, running_in_process
from benchmarks.load import BROWSER_HEADERS, LoadFailed
from benchmarks.processes import SERVER_CORE, on_core
from benchmarks.results import WHOLE, Rows
from benchmarks.testbed import CLIENT, Testbed
from service.web.request.state import BODY_IS_COMPLETE
from tests.conftest import lowering_hash_cost
from tests.faults.deployment import Session
from tests.support.clients_and_users import GATEWAY, INTROSPECT, TOKEN, VERIFY, bearer

ROUTE = "an empty route"
REFRESH = "refresh, in the application / an empty route"
VERIFY_ASKING = "verify, Redis asked, in the application / an empty route"
VERIFY_MEMORY = "verify, from memory, in the application / an empty route"
INTROSPECT_ASKING = "introspect, Redis asked, in the application / an empty route"
REFRESH_OF_BROWSER = "refresh, 14 headers, in the application / an empty route"
MICROSECONDS, INSTRUCTIONS = "µs of a request in the application", "thousand instructions of the same"
CONCURRENT_REQUESTS = 64
COUNTED_ROUNDS = 9
"""The rounds whose instructions are counted. Background work of the service is in most of them, so the least counts."""


_NEXT_TOKEN = re.compile(rb'"refresh_token": ?"([^"]+)"')
RequestScopeAndBody = tuple[dict[str, Any], bytes]


@dataclass(frozen=True)
class _Load:
    """An application, and the request that it gets CONCURRENT_REQUESTS times at once.

    A refresh presents one of `refresh_tokens`, and leaves the next token of the session there.
    """

    app: ASGIApp
    request: RequestScopeAndBody
    refresh_tokens: deque[bytes] | None = None

    async def measure(self) -> float:
        """Return the processor time of each request in microseconds."""
        before = time.process_time()
        await asyncio.gather(*(self.serve() for _ in range(CONCURRENT_REQUESTS)))
        return (time.process_time() - before) / CONCURRENT_REQUESTS * 1e6

    async def serve(self) -> None:
        """Send the request once. Raises LoadFailed unless the status is 200."""
        scope, body = self.request
        if self.refresh_tokens is not None:
            body += self.refresh_tokens.popleft()

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            if message.get("status", 200) != 200:
                raise LoadFailed(f"{scope['path']} answers {message['status']}")
            if self.refresh_tokens is not None and (found := _NEXT_TOKEN.search(message.get("body", b""))):
                self.refresh_tokens.append(found[1])

        await self.app(dict(scope), receive, send)


def measure_costs(testbed: Testbed, rounds: int) -> Rows:
    """Return the ratio of each round, and the microseconds."""
    sessions = testbed.start_sessions(2 * CONCURRENT_REQUESTS)
    with on_core(SERVER_CORE), logging_to(testbed.folder / "costs.log"):
        return asyncio.run(_measure(testbed.deployment.environment(), sessions, rounds))


def count_instructions(testbed: Testbed, _: int) -> Rows:
    """Return the thousands of instructions of a request, counted in a process of its own."""
    if not shutil.which("valgrind"):
        return {}
    counts = testbed.folder / "callgrind"
    # Callgrind writes its counters before each call of a function that nothing else calls.
    command = ["valgrind", "-q", "--tool=callgrind", "--dump-before=getloadavg", f"--callgrind-out-file={counts}"]
    sessions = json.dumps(testbed.start_sessions(2 * CONCURRENT_REQUESTS))
    environment = os.environ | testbed.deployment.environment()
    output = subprocess.check_output(
        [*command, sys.executable, "-m", __name__], input=sessions, env=environment, text=True
    )
    rows: Rows = {INSTRUCTIONS: {}}
    for number, name in enumerate(output.splitlines()):
        # Each round calls the function before and after its requests.
        text = counts.with_name(f"{counts.name}.{2 * number + 2}").read_text()
        thousands = int(re.findall(r"^totals: (\d+)", text, re.MULTILINE)[0]) / CONCURRENT_REQUESTS / 1000
        rows[INSTRUCTIONS][name] = [min([thousands, *rows[INSTRUCTIONS].get(name, [])])]
    return rows


async def _count(sessions: Sequence[Session]) -> None:
    """Print the name of each kind of request, and mark its requests for Callgrind.

    A secret's first check would miss its deadline in Valgrind, which is fifty times slower. It is not counted.
    """
    with lowering_hash_cost():
        async with _making_loads(os.environ, sessions) as loads:
            for name, load in loads.items():
                await load.measure()  # fills the caches
                for _ in range(COUNTED_ROUNDS):
                    os.getloadavg()
                    await load.measure()
                    os.getloadavg()
                    sys.stdout.write(f"{_name_part(name)}\n")


async def _measure(environment: Mapping[str, str], sessions: Sequence[Session], rounds: int) -> Rows:
    async with _making_loads(environment, sessions) as loads:
        rows: Rows = {name: {WHOLE: []} for name in loads if name != ROUTE}
        rows[MICROSECONDS] = {_name_part(name): [] for name in loads}
        for _ in range(rounds):
            costs = {name: await load.measure() for name, load in loads.items()}
            for name, cost in costs.items():
                rows[MICROSECONDS][_name_part(name)].append(cost)
                if name != ROUTE:
                    rows[name][WHOLE].append(cost / costs[ROUTE])
        return rows


def _name_part(name: str) -> str:
    return name.removesuffix(", in the application / an empty route")


@asynccontextmanager
async def _making_loads(environment: Mapping[str, str], sessions: Sequence[Session]) -> AsyncIterator[dict[str, _Load]]:
    """Start the application, and yield the requests by the names of their rows. Each has been sent once."""
    async with (
        running_in_process(environment) as (app, _),
        running_in_process({**environment, "TOKEN_SERVICE_VERIFY_CACHE": "on"}) as (cached_app, _),
    ):
        verify = _make_request("GET", VERIFY, bearer(sessions[0][0]))
        introspect = _make_post(INTROSPECT, GATEWAY.basic, token=sessions[0][0])
        refresh, of_browser = (
            _make_post(TOKEN, CLIENT.basic | headers, grant_type="refresh_token", refresh_token="")
            for headers in ({}, dict(header.split(": ", 1) for header in BROWSER_HEADERS))
        )
        tokens = [token.encode() for _, token in sessions]
        loads = {
            ROUTE: _Load(Starlette(routes=[Route("/", _respond)]), _make_request("GET", "/", {})),
            REFRESH: _Load(app, refresh, deque(tokens[::2])),
            REFRESH_OF_BROWSER: _Load(app, of_browser, deque(tokens[1::2])),
            VERIFY_ASKING: _Load(app, verify),
            VERIFY_MEMORY: _Load(cached_app, verify),
            INTROSPECT_ASKING: _Load(app, introspect),
        }
        for load in loads.values():
            await load.serve()  # hashes the client secret, which is then in the cache
        yield loads


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
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 50_000),
        BODY_IS_COMPLETE: True,
    }
    return scope, body


if __name__ == "__main__":
    asyncio.run(_count(json.load(sys.stdin)))
