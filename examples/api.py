"""An example API that looks up the access tokens of the token service directly in Redis.

    ./scripts/build-wheels
    python3 -m venv /tmp/api
    /tmp/api/bin/pip install build/wheels/opaque_token_service_gateway-*.whl starlette uvicorn
    REDIS_URL=unix://$PWD/.data/store.sock /tmp/api/bin/uvicorn --app-dir examples --factory api:make_api --port 9100

This is the embedded Redis server of ./scripts/serve. Otherwise, REDIS_URL is the same as for the service. `/` needs no
token, `/me` any valid token, and `/partners` a token with the role partner. Each challenge names the metadata of
the API (RFC 9728), which names the service.
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
from token_service_gateway import AccessGrant, BearerLookup, BearerMiddleware, make_resource_metadata

API_URL = os.environ.get("API_URL", "http://127.0.0.1:9100")
BASE_URL = os.environ.get("TOKEN_SERVICE_BASE_URL", "http://127.0.0.1:8000")
METADATA_PATH = "/.well-known/oauth-protected-resource"


async def say_hello(_: Request) -> Response:
    return JSONResponse({"hello": "everybody"})


async def show_me(request: Request) -> Response:
    """Return the user, the client and the scope of the token. Store `subject`; `username` is for display."""
    grant: AccessGrant = request.state.grant
    return JSONResponse(
        {"subject": grant.subject, "username": grant.username, "client_id": grant.client_id, "scope": grant.scope}
    )


async def show_prices(request: Request) -> Response:
    return JSONResponse({"prices for": request.state.grant.username})


async def show_metadata(_: Request) -> Response:
    return JSONResponse(make_resource_metadata(API_URL, BASE_URL, scope="role:enduser", name="Example API"))


def make_api() -> Starlette:
    lookup = BearerLookup(os.environ["REDIS_URL"])

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await lookup.close()

    metadata_url = API_URL + METADATA_PATH
    any_token = Middleware(BearerMiddleware, lookup, resource_metadata=metadata_url)
    partner_token = Middleware(BearerMiddleware, lookup, scope="role:partner", resource_metadata=metadata_url)
    return Starlette(
        routes=[
            Route("/", say_hello),
            Route(METADATA_PATH, show_metadata),
            Route("/me", show_me, middleware=[any_token]),
            Route("/partners", show_prices, middleware=[partner_token]),
        ],
        lifespan=lifespan,
    )
