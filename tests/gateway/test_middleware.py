"""The ASGI middleware in front of an API, with tokens of the real service."""

import json
import re
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from service.gateway import AccessGrant, BearerLookup
from service.gateway.middleware import ASGIApp, ASGIScope, BearerMiddleware
from service.gateway.stream import Message, Receive, Send
from tests.conftest import http_client_for, running_lifespan
from tests.gateway.conftest import log_in
from tests.support.clients_and_users import ALICE, WEB_SHOP, assert_error, bearer
from tests.support.waiting import until_true

AUTHORIZATION = b"authorization"


async def show_grant(scope: ASGIScope, receive: Receive, send: Send) -> None:
    """An API in plain ASGI: it says whom the request comes from."""
    grant: AccessGrant = scope["state"]["grant"]
    body = json.dumps({"subject": grant.subject, "username": grant.username, "scope": grant.scope})
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body.encode()})


async def get(app: ASGIApp, headers: Any = (), path: str = "/") -> httpx2.Response:
    async with http_client_for(app) as client:
        return await client.get(path, headers=headers)


async def call(app: ASGIApp, scope: ASGIScope) -> list[Message]:
    """Return what the app sends to a connection that sends no message of its own."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": f"{scope['type']}.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


def websocket(access_token: str | None, extensions: Sequence[str] = ()) -> ASGIScope:
    headers = [] if access_token is None else [(AUTHORIZATION, f"Bearer {access_token}".encode())]
    return {
        "type": "websocket",
        "path": "/",
        "headers": headers,
        "subprotocols": [],
        "extensions": {name: {} for name in extensions},
    }


def attributes_of(response: httpx2.Response) -> list[tuple[str, str]]:
    """The attributes of the Bearer challenge, which holds nothing else and each of them once."""
    scheme, _, rest = response.headers["www-authenticate"].partition(" ")
    attributes = re.findall(r'(\w+)="([\x20-\x21\x23-\x5B\x5D-\x7E]*)"', rest)

    assert scheme == "Bearer"
    assert rest == ", ".join(f'{name}="{value}"' for name, value in attributes)
    assert len(dict(attributes)) == len(attributes)
    return attributes


@pytest.mark.clause("6750-2.1-authorization-header", "spec-4.5-bearer-header")
async def test_a_live_token_brings_its_grant_to_the_app(http: httpx2.AsyncClient, lookup: BearerLookup) -> None:
    response = await get(BearerMiddleware(show_grant, lookup, scope="role:enduser"), bearer(await log_in(http)))

    body = response.json()
    assert (response.status_code, body["username"]) == (200, ALICE.username)
    assert body["scope"] == "realm:main role:enduser"
    assert body["subject"]


@pytest.mark.clause("6750-3-challenge", "6750-3-scheme-bearer", "6750-3.1-no-error-without-credentials")
@pytest.mark.parametrize("headers", [{}, WEB_SHOP.basic])
async def test_missing_bearer_gets_a_bare_challenge(lookup: BearerLookup, headers: dict[str, str]) -> None:
    response = await get(BearerMiddleware(show_grant, lookup), headers)

    assert (response.status_code, response.content) == (401, b"")
    assert attributes_of(response) == [("realm", "token-service")]
    assert response.headers["cache-control"] == "no-store, no-cache"
    assert response.headers["content-length"] == "0"


@pytest.mark.clause("6750-3.1-invalid-token-401", "6750-3-error-attribute", "6750-3-characters", "6750-2.1-syntax")
@pytest.mark.parametrize("token", ["tsat1_" + "0" * 47, "é"], ids=lambda t: t[:9])
async def test_malformed_access_token_is_invalid_token(lookup: BearerLookup, registry: None, token: str) -> None:
    response = await get(BearerMiddleware(show_grant, lookup), [(AUTHORIZATION, f"Bearer {token}".encode())])

    assert_error(response, 401, "invalid_token")
    assert dict(attributes_of(response)) == {"realm": "token-service"} | response.json()


@pytest.mark.clause("6750-3.1-insufficient-scope-403", "6750-3-scope-attribute", "6750-5.2-scope-restricted")
async def test_insufficient_scope_names_the_required_scope(http: httpx2.AsyncClient, lookup: BearerLookup) -> None:
    app = BearerMiddleware(show_grant, lookup, scope="role:partner realm:main")

    response = await get(app, bearer(await log_in(http)))

    assert_error(response, 403, "insufficient_scope")
    assert dict(attributes_of(response)) == response.json() | {
        "realm": "token-service",
        "scope": "realm:main role:partner",
    }


@pytest.mark.clause("decided-api-during-outage")
async def test_outage_of_redis_admits_no_request_and_is_logged(
    lookup_without_redis: BearerLookup, caplog: pytest.LogCaptureFixture
) -> None:
    """A process logs the outage once a second, and another test may just have met one."""
    app = BearerMiddleware(show_grant, lookup_without_redis)

    async def is_logged() -> bool:
        response = await get(app, bearer("tsat1_" + "0" * 47))
        assert_error(response, 503, "temporarily_unavailable")
        assert response.headers["retry-after"] == "1"
        assert "www-authenticate" not in response.headers
        return ("service.gateway", "ERROR") in [(record.name, record.levelname) for record in caplog.records]

    await until_true(is_logged, "the line about the outage")


async def test_connection_of_an_unknown_type_is_refused(http: httpx2.AsyncClient, lookup: BearerLookup) -> None:
    """A live token makes no difference, since the place of credentials in such a connection is not known."""
    seen: list[ASGIScope] = []

    async def look(scope: ASGIScope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    headers = [(AUTHORIZATION, f"Bearer {await log_in(http)}".encode())]
    with pytest.raises(ValueError, match="of the type 'webtransport'"):
        await call(BearerMiddleware(look, lookup), {"type": "webtransport", "headers": headers})

    assert seen == []


@pytest.mark.clause("decided-api-scope-must-exist")
@pytest.mark.parametrize(
    ("scope", "word"),
    [
        ("role:nobody", "role:nobody is unknown"),
        ("role:admin  role:partner", "malformed"),
        ("realm:main realm:cep", "one realm"),
    ],
)
def test_impossible_scope_is_refused_at_construction(scope: str, word: str) -> None:
    lookup = BearerLookup("redis://127.0.0.1:1/0")

    with pytest.raises(ValueError, match=f"no token can have the scope '{scope}': .*{word}"):
        BearerMiddleware(show_grant, lookup, scope=scope)


async def refuse(app: ASGIApp, scope: ASGIScope) -> httpx2.Response:
    """The answer that a websocket is denied with."""
    start, body = await call(app, scope)

    assert (start["type"], body["type"]) == ("websocket.http.response.start", "websocket.http.response.body")
    return httpx2.Response(start["status"], headers=start["headers"], content=body["body"])


@pytest.mark.clause("decided-api-websocket")
@pytest.mark.clause("6750-3-challenge", "6750-3.1-no-error-without-credentials", "6750-3.1-invalid-token-401")
async def test_websocket_is_denied_with_a_response_if_possible(http: httpx2.AsyncClient, lookup: BearerLookup) -> None:
    app = BearerMiddleware(show_grant, lookup, scope="role:partner")
    denial = ["websocket.http.response"]

    anonymous = await refuse(app, websocket(None, denial))
    assert (anonymous.status_code, anonymous.content) == (401, b"")
    assert attributes_of(anonymous) == [("realm", "token-service")]
    assert_error(await refuse(app, websocket("x", denial)), 401, "invalid_token")
    assert_error(await refuse(app, websocket(await log_in(http), denial)), 403, "insufficient_scope")


@pytest.mark.clause("decided-api-websocket")
@pytest.mark.parametrize("access_token", [None, "x"])
async def test_websocket_is_otherwise_closed_before_acceptance(
    lookup: BearerLookup, registry: None, access_token: str | None
) -> None:
    sent = await call(BearerMiddleware(show_grant, lookup), websocket(access_token))

    assert sent == [{"type": "websocket.close", "code": 1008}]


async def say_name(request: Request) -> Response:
    return PlainTextResponse(request.state.grant.username)


async def test_routes_and_mounts_can_require_their_own_scope(http: httpx2.AsyncClient, lookup: BearerLookup) -> None:
    def require(scope: str) -> list[Middleware]:
        return [Middleware(BearerMiddleware, lookup, scope=scope)]

    inner = [Route("/any", say_name), Route("/admin", say_name, middleware=require("role:admin"))]
    app = Starlette(
        routes=[
            Route("/open", lambda request: PlainTextResponse("open")),
            Route("/organisation", say_name, middleware=require("role:organisation")),
            Mount("/inner", routes=inner, middleware=require("")),
            Mount("/wrapped", BearerMiddleware(Starlette(routes=[Route("/", say_name)]), lookup)),
        ]
    )
    headers = bearer(await log_in(http))

    assert {
        path: (await get(app, headers, path)).status_code
        for path in ("/open", "/organisation", "/inner/any", "/inner/admin", "/wrapped/")
    } == {"/open": 200, "/organisation": 403, "/inner/any": 200, "/inner/admin": 403, "/wrapped/": 200}
    assert (await get(app, (), "/inner/any")).status_code == 401
    assert (await get(app, headers, "/inner/any")).text == ALICE.username


async def test_around_a_whole_application_its_lifespan_still_runs(lookup: BearerLookup) -> None:
    app = BearerMiddleware(Starlette(routes=[Route("/", say_name)]), lookup)

    async with running_lifespan(app):
        assert (await get(app)).status_code == 401
