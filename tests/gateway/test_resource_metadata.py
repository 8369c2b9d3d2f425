"""The protected resource metadata of an API: the document, and its URL in the challenge of each refusal.

The evaluation of annotations is not postponed, since FastAPI could not resolve those that name a local variable.
"""

from collections.abc import Callable
from typing import Annotated

import httpx2
import pytest
from fastapi import FastAPI

from service.gateway import AccessGrant, BearerLookup
from service.gateway.fastapi_guard import BearerGuard, TokenRefused, answer_token_refused
from service.gateway.middleware import ASGIApp, BearerMiddleware
from service.gateway.resource_metadata import make_resource_metadata
from tests.conftest import http_client_for
from tests.gateway.conftest import log_in
from tests.support.clients_and_users import bearer

API = "https://api.example/orders"
BASE_URL = "https://tokens.example/base"
METADATA_URL = "https://api.example/.well-known/oauth-protected-resource/orders"


def with_middleware(lookup: BearerLookup) -> ASGIApp:
    return BearerMiddleware(FastAPI(), lookup, scope="role:partner", resource_metadata=METADATA_URL)


def with_guard(lookup: BearerLookup) -> ASGIApp:
    guard = BearerGuard(lookup, BASE_URL, resource_metadata=METADATA_URL)

    async def show(grant: Annotated[AccessGrant, guard.requires("role:partner")]) -> str:
        return grant.username

    app = FastAPI(exception_handlers={TokenRefused: answer_token_refused})
    app.get("/")(show)
    return app


@pytest.mark.clause("9728-5.1-resource-metadata", "6750-3-challenge")
@pytest.mark.parametrize("make_app", [with_middleware, with_guard])
async def test_each_challenge_names_the_resource_metadata(
    http: httpx2.AsyncClient, lookup: BearerLookup, make_app: Callable[[BearerLookup], ASGIApp]
) -> None:
    valid = ("Authorization", f"Bearer {await log_in(http)}")
    async with http_client_for(make_app(lookup)) as client:
        responses = [await client.get("/", headers=headers) for headers in ([], bearer("x"), [valid], [valid, valid])]

    assert [response.status_code for response in responses] == [401, 401, 403, 400]
    for response in responses:
        challenge = response.headers["www-authenticate"]
        assert challenge.startswith('Bearer realm="token-service", ')
        assert challenge.endswith(f', resource_metadata="{METADATA_URL}"')


@pytest.mark.parametrize(
    "url",
    [
        "/.well-known/oauth-protected-resource",
        "ftp://api.example/",
        "https://",
        "https://user@api.example/",
        'https://api.example/", error="x',
        "https://api.example/\\",
        "https://api.example/\r\nX: y",
        "https://api.example/é",
        "https://api.example/#fragment",
    ],
)
def test_malformed_url_is_refused_at_the_start(url: str) -> None:
    lookup = BearerLookup("redis://127.0.0.1:1/0")

    with pytest.raises(ValueError, match="is not an absolute http or https URL"):
        BearerMiddleware(FastAPI(), lookup, resource_metadata=url)
    with pytest.raises(ValueError, match="is not an absolute http or https URL"):
        BearerGuard(lookup, BASE_URL, resource_metadata=url)
    with pytest.raises(ValueError, match="is not an absolute http or https URL"):
        make_resource_metadata(url, BASE_URL)


@pytest.mark.clause("9728-2-resource", "9728-2-scopes", "9728-3.2-no-empty-value")
def test_metadata_names_the_api_and_the_issuer() -> None:
    assert make_resource_metadata(API, f"{BASE_URL}/", scope="role:partner realm:main", name="Orders") == {
        "resource": API,
        "resource_name": "Orders",
        "authorization_servers": [BASE_URL],
        "scopes_supported": ["realm:main", "role:partner"],
        "bearer_methods_supported": ["header"],
    }
    assert make_resource_metadata(API, BASE_URL).keys() == {
        "resource",
        "authorization_servers",
        "bearer_methods_supported",
    }


def test_metadata_with_a_scope_that_no_token_has_is_refused() -> None:
    with pytest.raises(ValueError, match="no token can have the scope"):
        make_resource_metadata(API, BASE_URL, scope="realm:main realm:cep")
