"""Logins at the pages of an independent OpenID Connect provider, and the way back."""

import re
from collections.abc import Iterator

import httpx2
import pytest
from playwright.async_api import Locator, Page, expect

from tests.pages.application import Application
from tests.pages.browser import NO_JAVASCRIPT, PHONE, Device
from tests.pages.conftest import OpenPage
from tests.pages.deployment import SHOP, Deployment, running_deployment
from tests.pages.steps import allow, expect_consent, expect_heading
from tests.realms.login_steps import CALLBACK
from tests.realms.provider import LOGIN, SUB, Provider, realm_of_provider, running_provider
from tests.support.browser import authorization_url, page_text
from tests.support.clients_and_users import AUDITOR, tokens_of

NAME = "Example Provider"
CEP = "realm:cep role:enduser"
ANY_REALM = "role:enduser"
"""A scope that leaves the choice of the realm open."""


def ask_for(scope: str, callback: str) -> str:
    """Return the address of the application's authorization request."""
    return authorization_url(SHOP, callback, scope=scope, state="a state")


def provider_button(page: Page, name: str = NAME) -> Locator:
    return page.get_by_role("button", name=page_text("login.provider").format(provider=name), exact=True)


async def expect_at(page: Page, url: str) -> None:
    """Check that the page belongs to this server."""
    await expect(page).to_have_url(re.compile(re.escape(url) + "/"))


async def expect_person(page: Page, username: str, realm_label: str) -> None:
    """Check the user and the provider that the consent page names."""
    person = page.locator(".person")
    await expect(person.get_by_text(username, exact=True)).to_be_visible()
    await expect(person.get_by_text(realm_label, exact=True)).to_be_visible()


@pytest.fixture(scope="module")
def provider(service_port: int) -> Iterator[Provider]:
    with running_provider(f"http://127.0.0.1:{service_port}{CALLBACK}", host="localhost") as provider:
        yield provider


@pytest.fixture(scope="module")
def shared_deployment(
    service_port: int, provider: Provider, shared_application: Application, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """The service of these tests. Its realm `cep` identifies users by a signed ID token only."""
    folder, callback = tmp_path_factory.mktemp("provider"), shared_application.callback
    realm = realm_of_provider(provider, name=NAME, jwks_uri=f"{provider.url}/jwks")
    with running_deployment(folder, callback, port=service_port, realms={"cep": realm}) as deployment:
        yield deployment


async def log_in_at_provider(page: Page, provider: Provider) -> None:
    await expect_at(page, provider.url)
    await page.get_by_label("Login").fill(LOGIN)
    await page.get_by_label("Password").fill("whatever")
    await page.get_by_role("button", name="Sign in").click()


@pytest.mark.clause("spec-2.2-realm-cep", "spec-4.1-login-and-consent")
@pytest.mark.parametrize(
    ("device", "scope"), [(PHONE, ANY_REALM), pytest.param(NO_JAVASCRIPT, CEP, marks=pytest.mark.long)]
)
async def test_provider_login_gives_tokens(
    open_page: OpenPage,
    application: Application,
    provider: Provider,
    http: httpx2.AsyncClient,
    device: Device,
    scope: str,
) -> None:
    page = await open_page(device)
    await page.goto(ask_for(scope, application.callback))
    if scope == ANY_REALM:
        await provider_button(page).click()
    await log_in_at_provider(page, provider)
    await expect_consent(page)
    await expect_person(page, SUB, NAME)
    await allow(page)

    code = (await application.await_callback(page)).query["code"]
    tokens = tokens_of(await SHOP.exchange(http, code, application.callback))
    assert tokens["scope"] == CEP
    seen = (await AUDITOR.introspect(http, tokens["access_token"])).json()
    assert (seen["active"], seen["realm"], seen["username"]) == (True, "cep", SUB)


async def log_out_at_provider(page: Page, provider: Provider) -> None:
    """End the browser's session at the provider, in another tab. The provider has then told the service."""
    tab = await page.context.new_page()
    await tab.goto(f"{provider.url}/session/end")
    await tab.get_by_role("button", name="Sign out").click()
    await expect(tab.get_by_role("heading", name="Signed out")).to_be_visible()
    await tab.close()


@pytest.mark.clause("decided-backchannel-logout")
async def test_logout_at_the_provider_ends_the_login_here(
    open_page: OpenPage, application: Application, provider: Provider, http: httpx2.AsyncClient
) -> None:
    """The provider's logout in one browser ends its session and its open page here, and spares another browser's."""
    tokens = []
    pages = [await open_page(PHONE), await open_page(NO_JAVASCRIPT)]
    for page in pages:
        await page.goto(ask_for(CEP, application.callback))
        await log_in_at_provider(page, provider)
        await expect_consent(page)
        await allow(page)
        code = (await application.await_callback(page)).query["code"]
        tokens.append(tokens_of(await SHOP.exchange(http, code, application.callback)))
    page, _ = pages
    await page.goto(ask_for(CEP, application.callback))
    await expect_consent(page)

    await log_out_at_provider(page, provider)

    live = [(await AUDITOR.introspect(http, each["access_token"])).json()["active"] for each in tokens]
    assert live == [False, True]
    refreshed = [(await SHOP.refresh(http, each["refresh_token"])).status_code for each in tokens]
    assert refreshed == [400, 200]
    await allow(page)
    await expect_heading(page, "refused.signed_out_heading")
