"""Logins at the pages of an independent OpenID Connect provider, and the way back."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest
from playwright.async_api import Page

from tests.pages.application import Application
from tests.pages.browser import NO_JAVASCRIPT, PHONE, Device
from tests.pages.conftest import OpenPage
from tests.pages.deployment import SHOP, Deployment, running_deployment
from tests.pages.provider_instance import ANY_REALM, CEP, ask_for, expect_at, expect_person, provider_button
from tests.pages.steps import allow, button, expect_consent
from tests.realms.login_steps import CALLBACK
from tests.realms.provider import LOGIN, SUB, Provider, realm_of_provider, running_provider
from tests.support.clients_and_users import AUDITOR, tokens_of

NAME = "Example Provider"


@pytest.fixture(scope="module")
def provider(service_port: int) -> Iterator[Provider]:
    with running_provider(f"http://127.0.0.1:{service_port}{CALLBACK}", host="localhost") as provider:
        yield provider


@pytest.fixture(scope="module")
def shared_deployment(
    service_port: int,
    provider: Provider,
    shared_application: Application,
    tmp_path_factory: pytest.TempPathFactory,
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
async def test_who_logs_in_at_the_provider_and_allows_gives_the_application_tokens(
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
        await provider_button(page, NAME).click()
    await log_in_at_provider(page, provider)
    await expect_consent(page)
    await expect_person(page, SUB, NAME)
    await allow(page)

    code = (await application.await_callback(page)).query["code"]
    tokens = tokens_of(await SHOP.exchange(http, code, application.callback))
    assert tokens["scope"] == CEP
    seen = (await AUDITOR.introspect(http, tokens["access_token"])).json()
    assert (seen["active"], seen["realm"], seen["username"]) == (True, "cep", SUB)


@pytest.mark.clause("spec-4.1-denial", "spec-7.3-redirect-errors")
async def test_who_cancels_at_the_provider_sends_the_application_away_without_a_code(
    page: Page, application: Application, provider: Provider
) -> None:
    await page.goto(ask_for(ANY_REALM, application.callback))
    await provider_button(page, NAME).click()
    await expect_at(page, provider.url)
    await page.get_by_role("button", name="Cancel").click()

    visit = await application.await_callback(page)
    assert visit.query.keys() == {"error", "error_description", "state", "iss"}
    assert (visit.query["error"], visit.query["state"]) == ("access_denied", "a state")


@pytest.mark.long
async def test_who_is_not_the_one_that_the_provider_remembers_is_asked_there_again(
    page: Page, application: Application, provider: Provider
) -> None:
    """The provider returns its signed-in user without a page by default."""
    await page.goto(ask_for(CEP, application.callback))
    await log_in_at_provider(page, provider)
    await expect_consent(page)
    await page.context.clear_cookies(name="ts_session")
    await page.goto(ask_for(CEP, application.callback))
    await expect_person(page, SUB, NAME)

    await button(page, "consent.switch").click()
    await log_in_at_provider(page, provider)
    await expect_consent(page)
    await expect_person(page, SUB, NAME)
