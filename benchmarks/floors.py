"""The least that an answer can cost on this stack, step by step: ASGI, a route, and one awaited call of redis-py.

Each is an application of its own, `benchmarks.floors:bare` and so on, and answers the same 200 bytes of JSON.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import redis.asyncio as redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from benchmarks.load import LoadFailed, Target
from benchmarks.processes import SERVER_CORE, on_core
from tests.support.servers import CHECKOUT, RedisServer, free_port, stop
from tests.support.waiting import wait_until

BODY = b'{"filler":"' + b"x" * (200 - 13) + b'"}'
KEY = "benchmark"
SCRIPT = "return redis.call('GET', KEYS[1])"

BARE, ROUTE, GET, EVALSHA = "bare ASGI", "Starlette route", "Starlette + 1 GET", "Starlette + 1 EVALSHA"
APPLICATIONS = {BARE: "bare", ROUTE: "route", GET: "get", EVALSHA: "evalsha"}

# As `./scripts/serve` runs uvicorn.
SERVER = ("--loop", "uvloop", "--http", "httptools", "--ws", "none", "--no-proxy-headers", "--no-server-header")
QUIET = ("--no-access-log", "--log-level", "warning")

_DIGEST = hashlib.sha1(SCRIPT.encode()).hexdigest()
_client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://"))


async def bare(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        raise NotImplementedError("there is nothing to start")
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


async def answer(_: Request) -> Response:
    return Response(BODY, media_type="application/json")


async def answer_after_get(_: Request) -> Response:
    return Response(await _client.get(KEY), media_type="application/json")


async def answer_after_evalsha(_: Request) -> Response:
    return Response(await _client.evalsha(_DIGEST, 1, KEY), media_type="application/json")


route = Starlette(routes=[Route("/", answer)])
get = Starlette(routes=[Route("/", answer_after_get)])
evalsha = Starlette(routes=[Route("/", answer_after_evalsha)])


@contextmanager
def running_floor(name: str, redis_server: RedisServer) -> Iterator[Target]:
    """`name` is one of APPLICATIONS."""
    with redis_server.connect() as store:
        store.set(KEY, BODY)
        store.script_load(SCRIPT)
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", f"benchmarks.floors:{APPLICATIONS[name]}", "--port", str(port)]
    environment = os.environ | {"REDIS_URL": redis_server.url}
    with on_core(SERVER_CORE):
        process = subprocess.Popen([*command, *SERVER, *QUIET], cwd=CHECKOUT, env=environment)
    url = f"http://127.0.0.1:{port}/"

    def check(_: object) -> None:
        if httpx2.get(url).content != BODY:
            raise LoadFailed(f"{name} does not answer what it should")

    try:
        wait_until(lambda: answers(url), name)
        yield Target(name, url, process.pid, redis_server.process.pid, check=check)
    finally:
        stop(process)


def answers(url: str) -> bool:
    """Whether somebody listens there and answers 200."""
    try:
        return httpx2.get(url).status_code == 200
    except httpx2.TransportError:
        return False
