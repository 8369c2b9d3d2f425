"""An example API with FastAPI that looks up the access tokens of the token service directly in Redis.

    ./scripts/build-wheels
    python3 -m venv /tmp/api
    /tmp/api/bin/pip install "$(echo build/wheels/opaque_token_service_gateway-*.whl)[fastapi]" uvicorn websockets
    REDIS_URL=unix://$PWD/.data/store.sock /tmp/api/bin/uvicorn --app-dir examples fastapi_api:app --port 9100

`/` needs no token, `/me` and the WebSocket `/echo` any valid token. The others need a token with the role partner.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import FastAPI, WebSocket
from fastapi.responses import StreamingResponse
from token_service_gateway import AccessGrant, BearerLookup
from token_service_gateway.fastapi import BearerGuard, TokenRefused, answer_token_refused

lookup = BearerLookup(os.environ["REDIS_URL"])
guard = BearerGuard(lookup, os.environ.get("TOKEN_SERVICE_BASE_URL", "http://127.0.0.1:8000"))

AnyToken = Annotated[AccessGrant, guard.requires()]
PartnerToken = Annotated[AccessGrant, guard.requires("role:partner")]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    await lookup.close()


app = FastAPI(lifespan=lifespan, exception_handlers={TokenRefused: answer_token_refused})


@app.get("/")
async def say_hello() -> str:
    return "hello"


@app.get("/me")
async def show_me(grant: AnyToken) -> dict[str, str]:
    return {"subject": grant.subject}


@app.get("/prices", dependencies=[guard.requires("role:partner")])
async def show_prices() -> int:
    return 42


@app.get("/rebates")
async def show_rebates(grant: PartnerToken) -> dict[str, str]:
    return {"for": grant.username}


async def watch_prices() -> AsyncIterator[str]:
    while True:
        yield "data: 42\n\n"
        await asyncio.sleep(1)


@app.get("/prices/stream", dependencies=[guard.requires("role:partner")])
async def stream_prices() -> StreamingResponse:
    """Send an event each second, until the token expires or is revoked."""
    return StreamingResponse(watch_prices(), media_type="text/event-stream")


@app.websocket("/echo")
async def echo(websocket: WebSocket, grant: AnyToken) -> None:
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(f"{grant.username}: {text}")
