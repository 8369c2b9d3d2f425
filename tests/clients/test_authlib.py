"""An independent client library works with the service: Authlib, over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client

from tests.conftest import environment_of
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    PHONE_APP,
    REVOKE_ALL,
    TOKEN,
    WEB_SHOP,
    OAuthClient,
)
from tests.support.servers import RedisServer, ServiceProcess, running_service, start_redis, stop
from tests.support.waiting import MAX_WAIT_SECONDS

SCOPE = "realm:main role:enduser"
METHODS = (
    (WEB_SHOP, "client_secret_basic"),
    (WEB_SHOP, "client_secret_post"),
    (PHONE_APP, "none"),
)


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = start_redis(tmp_path_factory.mktemp("clients"))
    yield server
    stop(server.process)


@pytest.fixture(scope="module")
def service(own_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service"), environment_of(own_redis)) as service:
        yield service


@asynccontextmanager
async def authlib_client(service: ServiceProcess, app: OAuthClient, method: str) -> AsyncIterator[AsyncOAuth2Client]:
    async with AsyncOAuth2Client(
        app.client_id,
        app.client_secret,
        token_endpoint_auth_method=method,
        revocation_endpoint_auth_method=method,
        token_endpoint=service.url + TOKEN,
        scope=SCOPE,
        timeout=MAX_WAIT_SECONDS,
    ) as client:
        yield client


@pytest.mark.clause(
    "6749-4.3.2-password-validated", "spec-2.1-all-fields", "spec-4.2-basic", "spec-4.2-body-credentials"
)
@pytest.mark.parametrize(("app", "method"), METHODS)
async def test_a_password_is_exchanged_for_tokens_that_authlib_understands(
    service: ServiceProcess, app: OAuthClient, method: str
) -> None:
    async with authlib_client(service, app, method) as client:
        token = await client.fetch_token(grant_type="password", username=ALICE.username, password=ALICE.password)

    assert token["token_type"] == "Bearer"
    assert token["expires_in"] == 600
    assert token["scope"] == SCOPE
    assert not token.is_expired()


@pytest.mark.clause("spec-3-refresh-rotates", "spec-1-short-access-long-refresh")
async def test_an_expired_token_is_refreshed_by_authlib_on_its_own(service: ServiceProcess) -> None:
    async with authlib_client(service, PHONE_APP, "none") as client:
        await client.fetch_token(grant_type="password", username=BOB.username, password=BOB.password)
        expired = dict(client.token, expires_at=1)
        client.token = expired

        response = await client.post(service.url + REVOKE_ALL)

        assert response.status_code == 200
        assert client.token["refresh_token"] != expired["refresh_token"]


@pytest.mark.clause("spec-2.4-error-body", "6749-5.2-json", "6749-5.2-invalid-grant", "decided-error-description")
async def test_a_wrong_password_is_an_error_that_authlib_can_tell(service: ServiceProcess) -> None:
    async with authlib_client(service, PHONE_APP, "none") as client:
        with pytest.raises(OAuthError) as refusal:
            await client.fetch_token(grant_type="password", username=ALICE.username, password="wrong")

    assert refusal.value.error == "invalid_grant"
    assert refusal.value.description
