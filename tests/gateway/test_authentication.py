"""The backend for Starlette's AuthenticationMiddleware, and the guard of single handlers."""

from __future__ import annotations

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.authentication import SimpleUser
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from service.gateway import BearerLookup
from service.gateway.authentication import BearerBackend, BearerUser, answer_refusal, requires_scope
from tests.conftest import Clock, http_client_for
from tests.gateway.conftest import log_in
from tests.support.clients_and_users import ALICE, PHONE_APP, WEB_SHOP, assert_error, bearer

BARE_CHALLENGE = 'Bearer realm="token-service"'


async def who(request: Request) -> Response:
    user = request.user
    if not isinstance(user, BearerUser):
        return JSONResponse({"authenticated": user.is_authenticated, "scopes": request.auth.scopes})
    return JSONResponse(
        {
            "authenticated": user.is_authenticated,
            "scopes": request.auth.scopes,
            "display_name": user.display_name,
            "identity": user.identity,
            "client_id": user.grant.client_id,
        }
    )


@requires_scope()
async def for_any_token(request: Request) -> Response:
    return PlainTextResponse(request.user.display_name)


@requires_scope("role:organisation")
async def for_providers(request: Request) -> Response:
    return PlainTextResponse(request.user.display_name)


@requires_scope("role:organisation")
def for_providers_in_a_thread(request: Request) -> Response:
    return PlainTextResponse(request.user.display_name)


class Providers(HTTPEndpoint):
    @requires_scope("role:organisation")
    async def get(self, request: Request) -> Response:
        return PlainTextResponse(request.user.display_name)

    @requires_scope("role:organisation")
    def post(self, request: Request) -> Response:
        return PlainTextResponse(request.user.display_name)


def make_api(lookup: BearerLookup) -> Starlette:
    return Starlette(
        routes=[
            Route("/who", who),
            Route("/function", for_providers),
            Route("/thread", for_providers_in_a_thread),
            Route("/endpoint", Providers),
        ],
        middleware=[Middleware(AuthenticationMiddleware, backend=BearerBackend(lookup), on_error=answer_refusal)],
    )


async def get(lookup: BearerLookup, path: str, headers: dict[str, str] | None = None) -> httpx2.Response:
    async with http_client_for(make_api(lookup)) as client:
        return await client.get(path, headers=headers)


@pytest.mark.clause("6750-2.1-authorization-header", "spec-4.5-bearer-header")
async def test_a_live_token_makes_a_user_and_its_scope_the_credentials(
    http: httpx2.AsyncClient, lookup: BearerLookup
) -> None:
    body = (await get(lookup, "/who", bearer(await log_in(http)))).json()

    assert body.pop("identity") != ALICE.username
    assert body == {
        "authenticated": True,
        "scopes": ["authenticated", "realm:main", "role:enduser"],
        "display_name": ALICE.username,
        "client_id": PHONE_APP.client_id,
    }


@pytest.mark.parametrize("headers", [{}, WEB_SHOP.basic, {"Authorization": "Bearer"}])
async def test_request_without_bearer_is_anonymous(lookup: BearerLookup, headers: dict[str, str]) -> None:
    response = await get(lookup, "/who", headers)

    assert response.json() == {"authenticated": False, "scopes": []}


@pytest.mark.clause("6750-3.1-invalid-token-401", "6750-3-challenge")
async def test_bad_bearer_is_refused_on_an_anonymous_route(
    http: httpx2.AsyncClient, lookup: BearerLookup, clock: Clock
) -> None:
    expired = await log_in(http)
    clock.advance(600)

    for access_token in (expired, "x"):
        response = await get(lookup, "/who", bearer(access_token))

        assert_error(response, 401, "invalid_token")
        assert response.headers["www-authenticate"].startswith(f'{BARE_CHALLENGE}, error="invalid_token"')


@pytest.mark.clause("6750-3-challenge", "6750-3.1-no-error-without-credentials")
@pytest.mark.clause("6750-3.1-insufficient-scope-403", "6750-3-scope-attribute", "6750-5.2-scope-restricted")
@pytest.mark.parametrize("path", ["/function", "/thread", "/endpoint"])
async def test_a_guarded_handler_answers_only_a_token_with_its_scope(
    http: httpx2.AsyncClient, lookup: BearerLookup, path: str
) -> None:
    anonymous = await get(lookup, path)
    refused = await get(lookup, path, bearer(await log_in(http)))
    answered = await get(lookup, path, bearer(await log_in(http, "realm:main role:organisation")))

    assert (anonymous.status_code, anonymous.content) == (401, b"")
    assert anonymous.headers["www-authenticate"] == BARE_CHALLENGE
    assert_error(refused, 403, "insufficient_scope")
    assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]
    assert 'scope="role:organisation"' in refused.headers["www-authenticate"]
    assert answered.text == ALICE.username


async def test_user_of_another_backend_is_not_a_bearer() -> None:
    """An application may know other users, by a cookie for example; a handler for tokens does not."""
    request = Request({"type": "http", "headers": [], "user": SimpleUser("carol")})

    response = await for_any_token(request)

    assert response.status_code == 401
