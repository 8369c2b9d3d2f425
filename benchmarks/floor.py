"""The least that an address with one look into Redis can be: a Starlette route and one awaited GET of redis-py."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import redis.asyncio as redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_client = redis.Redis.from_url(os.environ["REDIS_URL"])


async def read(_: Request) -> Response:
    record = await _client.get(os.environ["BENCH_KEY"])
    return Response(record, media_type="text/plain")


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    yield
    await _client.aclose()


app = Starlette(routes=[Route("/", read)], lifespan=lifespan)
