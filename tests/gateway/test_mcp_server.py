"""The example MCP server: a client of the SDK finds the service by itself, and its user logs in in a browser."""

import runpy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from tests.conftest import AnyRedis, running_lifespan
from tests.support.browser import Browser, authorization_response
from tests.support.clients_and_users import PHONE_APP, PHONE_CALLBACK, TOKEN, VERIFY, bearer
from tests.support.servers import CHECKOUT
from tests.support.waiting import until_true

MCP_URL = "http://127.0.0.1:9100/mcp"
METADATA_URL = "http://127.0.0.1:9100/.well-known/oauth-protected-resource/mcp"


class Network(httpx2.AsyncBaseTransport):
    """Send each request to the service, or to the MCP server at its port. `log` has what was requested."""

    def __init__(self, service: httpx2.AsyncClient, mcp_server: httpx2.AsyncClient) -> None:
        self.service = service
        self.mcp_server = mcp_server
        self.log: list[tuple[str, int]] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await (self.mcp_server if request.url.port == 9100 else self.service).send(request)
        self.log.append((request.url.path, response.status_code))
        return response


class Storage:
    """The SDK's storage of a client that is registered at the service, which has no dynamic registration."""

    tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull:
        return OAuthClientInformationFull(client_id=PHONE_APP.client_id, token_endpoint_auth_method="none")

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError("the client is registered")


@pytest.fixture
async def network(
    http: httpx2.AsyncClient, redis_server: AnyRedis, gateway_library: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Network]:
    monkeypatch.setenv("REDIS_URL", redis_server.url)
    monkeypatch.syspath_prepend(gateway_library)
    app: Any = runpy.run_path(str(CHECKOUT / "examples" / "mcp_server.py"))["app"]
    async with running_lifespan(app), httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as mcp_server:
        yield Network(http, mcp_server)


@pytest.mark.clause("9728-5.1-resource-metadata", "8414-3.3-issuer-identical", "9207-2-iss-in-redirect")
async def test_mcp_client_logs_in_and_again_after_a_revocation(network: Network, browser: Browser) -> None:
    storage = Storage()
    callbacks: list[httpx2.Response] = []

    async def open_browser(address: str) -> None:
        callbacks.append(await browser.allow(await browser.open_consent_page(address)))

    async def read_callback() -> AuthorizationCodeResult:
        return AuthorizationCodeResult.model_validate(authorization_response(callbacks[-1]))

    provider = OAuthClientProvider(
        MCP_URL,
        OAuthClientMetadata.model_validate({"redirect_uris": [PHONE_CALLBACK]}),
        storage,
        open_browser,
        read_callback,
    )

    async def call_tool() -> Any:
        async with (
            httpx2.AsyncClient(transport=network, auth=provider) as http_client,
            Client(streamable_http_client(MCP_URL, http_client=http_client)) as client,
        ):
            return (await client.call_tool("tell_user", {})).structured_content

    async def is_refused() -> bool:
        answer = await network.mcp_server.post(MCP_URL, headers=bearer(access_token))
        return f'resource_metadata="{METADATA_URL}"' in answer.headers.get("www-authenticate", "")

    told = await call_tool()
    assert storage.tokens is not None
    access_token = storage.tokens.access_token
    subject = (await network.service.post(VERIFY, headers=bearer(access_token))).headers["x-auth-subject"]

    assert told == {"result": f"{subject} has the scope realm:main role:enduser"}
    assert network.log[:5] == [
        ("/mcp", 401),
        (urlsplit(METADATA_URL).path, 200),
        ("/.well-known/oauth-authorization-server", 200),
        (TOKEN, 200),
        ("/mcp", 200),
    ]

    await PHONE_APP.revoke(network.service, access_token)
    await until_true(is_refused, "the refusal of the revoked token")
    assert await call_tool() == told
    assert (len(callbacks), storage.tokens.access_token == access_token) == (2, False)
