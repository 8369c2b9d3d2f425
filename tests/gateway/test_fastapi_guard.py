"""The security dependency for FastAPI: what it lets through, how it refuses, and what OpenAPI says about it.

The evaluation of annotations is not postponed, since FastAPI could not resolve those that name a local variable.
"""

from collections.abc import MutableMapping
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import FastAPI, Security, WebSocket

from service.gateway import AccessGrant, BearerLookup
from service.gateway.fastapi_guard import BearerGuard, TokenRefused, answer_token_refused
from tests.conftest import http_client_for
from tests.gateway.conftest import log_in
from tests.support.clients_and_users import ALICE, assert_error, bearer

BASE_URL = "https://tokens.example/base"
BARE_CHALLENGE = 'Bearer realm="token-service"'


def make_api(lookup: BearerLookup, *, has_handler: bool = True) -> FastAPI:
    guard = BearerGuard(lookup, BASE_URL, web_url="https://login.example/")
    app = FastAPI(exception_handlers={TokenRefused: answer_token_refused} if has_handler else None)

    async def say_hello() -> str:
        return "hello"

    async def show_me(grant: Annotated[AccessGrant, guard.requires()]) -> str:
        return grant.username

    async def show_prices(grant: Annotated[AccessGrant, guard.requires("role:organisation")], number: int = 0) -> str:
        return grant.username

    async def show_both(
        grant: Annotated[AccessGrant, guard.requires()],
        provider: Annotated[AccessGrant, guard.requires("role:organisation")],
    ) -> str:
        return f"{grant.username} {provider.username}"

    async def show_mistake(grant: Annotated[AccessGrant, Security(guard, scopes=["role:nobody"])]) -> str:
        return grant.username

    async def stream(websocket: WebSocket, grant: Annotated[AccessGrant, guard.requires()]) -> None:
        await websocket.accept()
        await websocket.send_text(grant.username)

    app.get("/")(say_hello)
    app.get("/me")(show_me)
    app.get("/prices")(show_prices)
    app.get("/both")(show_both)
    app.get("/mistake")(show_mistake)
    app.get("/nested", dependencies=[Security(guard, scopes=["role:organisation"])])(show_me)
    app.websocket("/stream")(stream)
    return app


async def get(
    app: FastAPI, path: str, headers: dict[str, str] | list[tuple[str, str]] | None = None
) -> httpx2.Response:
    async with http_client_for(app) as client:
        return await client.get(path, headers=headers)


async def test_a_request_without_a_token_learns_nothing_of_parameters(lookup: BearerLookup) -> None:
    assert (await get(make_api(lookup), "/prices?number=x")).status_code == 401


@pytest.mark.clause("6750-3.1-insufficient-scope-403", "6750-3-scope-attribute")
@pytest.mark.parametrize("path", ["/prices", "/both", "/nested"])
async def test_a_token_without_the_scope_is_refused(http: httpx2.AsyncClient, lookup: BearerLookup, path: str) -> None:
    """FastAPI calls the guard for each scope of a request, and not once for all."""
    response = await get(make_api(lookup), path, bearer(await log_in(http)))

    assert_error(response, 403, "insufficient_scope")
    assert 'scope="role:organisation"' in response.headers["www-authenticate"]


async def test_a_websocket_is_guarded_before_it_is_accepted(http: httpx2.AsyncClient, lookup: BearerLookup) -> None:
    app, headers = make_api(lookup), bearer(await log_in(http))

    refused = await connect(app, {})
    accepted = await connect(app, headers)

    assert (refused[0]["type"], refused[0]["status"]) == ("websocket.http.response.start", 401)
    assert (b"www-authenticate", BARE_CHALLENGE.encode()) in refused[0]["headers"]
    assert [message["type"] for message in accepted[:2]] == ["websocket.accept", "websocket.send"]
    assert accepted[1]["text"] == ALICE.username


async def connect(app: FastAPI, headers: dict[str, str]) -> list[MutableMapping[str, Any]]:
    """Return what the application sends to a websocket, at a server that can refuse one by an HTTP response."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "websocket",
        "path": "/stream",
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "subprotocols": [],
        "extensions": {"websocket.http.response": {}},
    }
    await app(scope, receive, send)
    return sent


async def test_openapi_says_where_tokens_come_from(lookup_without_redis: BearerLookup) -> None:
    """Documentation pages show an "Authorize" button for such a scheme."""
    document = make_api(lookup_without_redis).openapi()
    (scheme,) = document["components"]["securitySchemes"].values()
    code, password = scheme["flows"]["authorizationCode"], scheme["flows"]["password"]

    assert (scheme["type"], set(scheme["flows"])) == ("oauth2", {"authorizationCode", "password"})
    assert code["authorizationUrl"] == "https://login.example/authorization/"
    assert code["tokenUrl"] == password["tokenUrl"] == password["refreshUrl"] == f"{BASE_URL}/oauth2/v1/token"
    assert {"realm:main", "role:enduser", "role:organisation"} <= set(code["scopes"])
    assert code["scopes"] == password["scopes"]
    assert "security" not in document["paths"]["/"]["get"]
    assert document["paths"]["/me"]["get"]["security"] == [{"token-service": []}]
    assert document["paths"]["/prices"]["get"]["security"] == [{"token-service": ["role:organisation"]}]
