"""Minimal applications, the floors: bare ASGI, a Starlette route, and a route with one call of redis-py.

Each is an ASGI application, such as `benchmarks.floors:bare`, and sends the same 200 bytes of JSON.
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
EVALSHA_OF_BROWSER = "Starlette + 1 EVALSHA, 14 headers"
APPLICATIONS = {BARE: "bare", ROUTE: "route", GET: "get", EVALSHA: "evalsha"}

# The same options of uvicorn as in `./scripts/serve`.
SERVER = ("--loop", "uvloop", "--http", "httptools", "--ws", "none", "--no-proxy-headers", "--no-server-header")
QUIET = ("--no-access-log", "--log-level", "warning")

_DIGEST = hashlib.sha1(SCRIPT.encode()).hexdigest()
_client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://"))


async def bare(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        raise NotImplementedError("this application has no lifespan")
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})


async def respond(_: Request) -> Response:
    return Response(BODY, media_type="application/json")


async def respond_after_get(_: Request) -> Response:
    return Response(await _client.get(KEY), media_type="application/json")


async def respond_after_evalsha(_: Request) -> Response:
    return Response(await _client.evalsha(_DIGEST, 1, KEY), media_type="application/json")


route = Starlette(routes=[Route("/", respond)])
get = Starlette(routes=[Route("/", respond_after_get)])
evalsha = Starlette(routes=[Route("/", respond_after_evalsha)])


@contextmanager
def running_floor(name: str, redis_server: RedisServer) -> Iterator[Target]:
    """Start the application `name` of APPLICATIONS under uvicorn."""
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
            raise LoadFailed(f"{name} sends a wrong response")

    try:
        wait_until(lambda: is_listening(url), name)
        yield Target(name, url, process.pid, redis_server.process.pid, check=check)
    finally:
        stop(process)


def is_listening(url: str) -> bool:
    """Return True if a server responds with 200 at the URL."""
    try:
        return httpx2.get(url).status_code == 200
    except httpx2.TransportError:
        return False
