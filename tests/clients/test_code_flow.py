"""The code flow of independent clients: the service runs as a process, and a browser uses its pages."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest
import yaml

from tests.clients.foreign import LIBRARIES, ForeignClient, LibraryError, Settings, foreign_client
from tests.conftest import SEED, environment_of
from tests.support.browser import Browser
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    PHONE_APP,
    PHONE_CALLBACK,
    SHOP_CALLBACK,
    WEB_SHOP,
    OAuthClient,
    UserCredentials,
)
from tests.support.servers import ServiceProcess, running_service, start_redis, stop
from tests.support.waiting import MAX_WAIT_SECONDS

SCOPE = "realm:main role:enduser"
ODD = OAuthClient("an odd client+", "a secret: with 100% + signs")
CAREFUL = OAuthClient("careful")
METHODS = (
    (WEB_SHOP, "client_secret_basic", SHOP_CALLBACK),
    (WEB_SHOP, "client_secret_post", SHOP_CALLBACK),
    (ODD, "client_secret_basic", SHOP_CALLBACK),
    (ODD, "client_secret_post", SHOP_CALLBACK),
    (PHONE_APP, "none", PHONE_CALLBACK),
    (CAREFUL, "none", "com.example.careful:/callback"),
)


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/seed.yaml with two more clients: one whose credentials need encoding, and one that must use PKCE."""
    entries = yaml.safe_load(SEED.read_text())
    usual = {"grant_types": ["authorization_code", "refresh_token"], "scope": SCOPE}
    entries["clients"] += [
        {"client_id": ODD.client_id, "client_secret": ODD.client_secret, "redirect_uris": [SHOP_CALLBACK]} | usual,
        {"client_id": CAREFUL.client_id, "redirect_uris": ["com.example.careful:/callback"], "require_pkce": True}
        | usual,
    ]
    file = tmp_path_factory.mktemp("seed") / "seed.yaml"
    file.write_text(yaml.safe_dump(entries))
    return file


@pytest.fixture(scope="module")
def service(seed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    server = start_redis(tmp_path_factory.mktemp("redis"))
    environment = environment_of(server, TOKEN_SERVICE_SEED_FILE=str(seed))
    with running_service(tmp_path_factory.mktemp("service"), environment) as service:
        yield service
    stop(server.process)


@pytest.fixture
async def browser(service: ServiceProcess) -> AsyncIterator[Browser]:
    async with httpx2.AsyncClient(base_url=service.url, verify=False, timeout=MAX_WAIT_SECONDS) as http:
        yield Browser(http)


async def sign_in(client: ForeignClient, browser: Browser, credentials: UserCredentials = ALICE) -> str:
    """Log in and allow the client's request. Returns the address of the callback."""
    page = await browser.open_consent_page(await client.begin(), credentials)
    return str((await browser.allow(page)).headers["location"])


def shop(service: ServiceProcess, *, scope: str = SCOPE) -> Settings:
    return Settings(service.url, WEB_SHOP, "client_secret_basic", SHOP_CALLBACK, scope)


@pytest.mark.clause("6749-2.3.1-basic-form-encoded", "6749-4.1.2-code-in-redirect", "6749-4.1.4-token-response")
@pytest.mark.clause("7009-2.1-immediate", "7636-4.6-equal", "8414-2-endpoints", "8414-3.3-issuer-identical")
@pytest.mark.clause("9207-2-iss-in-redirect", "spec-4.1-login-and-consent", "spec-4.2-code-grant")
@pytest.mark.parametrize(("app", "method", "redirect_uri"), METHODS)
@pytest.mark.parametrize("library", LIBRARIES)
async def test_client_redeems_refreshes_and_revokes_an_allowed_grant(
    service: ServiceProcess, browser: Browser, library: str, app: OAuthClient, method: str, redirect_uri: str
) -> None:
    async with foreign_client(library, Settings(service.url, app, method, redirect_uri)) as client:
        token = await client.finish(await sign_in(client, browser))
        assert (token["token_type"].lower(), token["expires_in"], token["scope"]) == ("bearer", 600, SCOPE)

        refreshed = await client.refresh(token["refresh_token"])
        assert len({tokens[name] for tokens in (token, refreshed) for name in ("access_token", "refresh_token")}) == 4

        await client.revoke(refreshed["refresh_token"])
        with pytest.raises(LibraryError, match="invalid_grant"):
            await client.refresh(refreshed["refresh_token"])


@pytest.mark.clause("6749-4.1.2.1-error", "6749-4.1.2.1-state-returned", "9207-2-iss-in-error-redirect")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("scope", "credentials", "error"),
    [("role:nobody", ALICE, "invalid_scope"), ("realm:main role:partner", BOB, "access_denied")],
    ids=["asked wrongly", "nothing to grant"],
)
async def test_libraries_recognise_errors_of_the_service(
    service: ServiceProcess, browser: Browser, library: str, scope: str, credentials: UserCredentials, error: str
) -> None:
    async with foreign_client(library, shop(service, scope=scope)) as client:
        response = await browser.open(await client.begin())
        if "location" not in response.headers:
            response = await browser.log_in(response, credentials)
        with pytest.raises(LibraryError) as refusal:
            await client.finish(response.headers["location"])

    assert refusal.value.error == error
    assert refusal.value.description


@pytest.mark.clause("6749-5.2-invalid-client")
@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_wrong_secret_is_an_error_that_the_library_can_tell(
    service: ServiceProcess, browser: Browser, library: str, method: str
) -> None:
    settings = Settings(service.url, OAuthClient(WEB_SHOP.client_id, "wrong"), method, SHOP_CALLBACK)
    async with foreign_client(library, settings) as client:
        redirect = await sign_in(client, browser)
        with pytest.raises(LibraryError) as refusal:
            await client.finish(redirect)

    assert refusal.value.error == "invalid_client"
    assert refusal.value.description
