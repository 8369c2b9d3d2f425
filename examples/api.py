"""An example API: it takes the tokens of the token service, and finds out by itself what they are good for.

    REDIS_URL=unix://$PWD/.data/store.sock .venv/bin/python -m uvicorn --factory examples.api:make_api --port 9100

That is the store of ./scripts/serve; elsewhere, REDIS_URL is that of the service. `/` is open, `/me` takes any live
token, `/partners` one with the role partner.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from service.gateway import AccessGrant, BearerLookup
from service.gateway.middleware import BearerMiddleware


async def say_hello(_: Request) -> Response:
    return JSONResponse({"hello": "everybody"})


async def show_me(request: Request) -> Response:
    """Whose token it is; `subject` is what to keep, `username` is for people."""
    grant: AccessGrant = request.state.grant
    return JSONResponse(
        {"subject": grant.subject, "username": grant.username, "client_id": grant.client_id, "scope": grant.scope}
    )


async def show_prices(request: Request) -> Response:
    return JSONResponse({"prices for": request.state.grant.username})


def make_api() -> Starlette:
    lookup = BearerLookup(os.environ["REDIS_URL"])

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await lookup.close()

    for_any_token = Middleware(BearerMiddleware, lookup)
    for_partners = Middleware(BearerMiddleware, lookup, scope="role:partner")
    return Starlette(
        routes=[
            Route("/", say_hello),
            Route("/me", show_me, middleware=[for_any_token]),
            Route("/partners", show_prices, middleware=[for_partners]),
        ],
        lifespan=lifespan,
    )
