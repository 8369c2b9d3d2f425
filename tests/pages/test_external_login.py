"""Logins at an identity provider's pages and the way back. The provider is a second instance of this service."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.async_api import Page, expect

from service.worker import Worker
from tests.pages.accessibility import assert_usable
from tests.pages.application import Application, Visit
from tests.pages.browser import NO_JAVASCRIPT
from tests.pages.conftest import OpenPage
from tests.pages.deployment import SHOP, Deployment, forget_all_but_the_registry, running_deployment
from tests.pages.provider_instance import (
    ANY_REALM,
    CEP,
    OUR_NAME,
    PROVIDER,
    YVES,
    ZOE,
    IdentityProvider,
    ask_for,
    expect_at,
    expect_person,
    provider_button,
    realm_of,
    running_provider,
)
from tests.pages.steps import (
    allow,
    button,
    deny,
    expect_consent,
    expect_heading,
    expect_login,
    log_in,
    password_field,
    username_field,
)
from tests.realms.login_steps import CALLBACK
from tests.support.browser import SESSIONS, authorization_url, page_text, register
from tests.support.clients_and_users import ALICE, AUDITOR, PHONE_APP, UserCredentials, assert_error, tokens_of
from tests.support.servers import ServiceProcess


@pytest.fixture(scope="module")
def shared_provider(service_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    callback = f"http://127.0.0.1:{service_port}{CALLBACK}"
    with running_provider(tmp_path_factory.mktemp("organisation"), callback) as provider:
        yield provider


@pytest.fixture(scope="module")
def shared_deployment(
    service_port: int,
    shared_provider: IdentityProvider,
    shared_application: Application,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployment]:
    """The service of these tests, with the provider as realm `cep`."""
    folder, callback = tmp_path_factory.mktemp("external"), shared_application.callback
    realms = {"cep": realm_of(shared_provider)}
    with running_deployment(folder, callback, port=service_port, realms=realms) as deployment:
        yield deployment


@pytest.fixture
def provider(shared_provider: IdentityProvider) -> IdentityProvider:
    """The provider, without logins."""
    with shared_provider.redis.connect() as store:
        forget_all_but_the_registry(store)
    return shared_provider


async def log_in_by_provider(page: Page, provider: IdentityProvider, credentials: UserCredentials = ZOE) -> None:
    """Log in at the provider, from its login page through its consent page."""
    await expect_at(page, provider.url)
    await expect_login(page)
    await log_in(page, credentials)
    await expect_consent(page, OUR_NAME)
    await expect_at(page, provider.url)
    await allow(page)


async def assert_tokens_of(
    http: httpx2.AsyncClient, application: Application, visit: Visit, username: str, scope: str
) -> None:
    """Check the user of the tokens that the application gets for its code."""
    assert visit.query.keys() == {"code", "state", "iss"}
    tokens = tokens_of(await SHOP.exchange(http, visit.query["code"], application.callback))
    assert tokens["scope"] == scope
    seen = (await AUDITOR.introspect(http, tokens["access_token"])).json()
    realm = scope.split()[0].removeprefix("realm:")
    assert (seen["active"], seen["realm"], seen["username"]) == (True, realm, username)


@pytest.mark.clause(
    "spec-2.2-realm-cep", "spec-4.1-login-and-consent", "6749-4.1.2-state-returned", "9207-2-iss-in-redirect"
)
async def test_who_logs_in_at_the_provider_and_allows_gives_the_application_tokens(
    page: Page,
    application: Application,
    service: ServiceProcess,
    provider: IdentityProvider,
    http: httpx2.AsyncClient,
) -> None:
    """If only realm `cep` is requested, no page of ours appears before the callback."""
    await page.goto(ask_for(CEP, application.callback))
    await log_in_by_provider(page, provider)

    await expect_consent(page)
    await expect_at(page, service.url)
    await expect_person(page, ZOE.username, PROVIDER)
    assert not application.visits
    await allow(page)
    visit = await application.await_callback(page)
    assert (visit.query["state"], visit.query["iss"]) == ("a state", service.url)
    assert "referer" not in visit.headers
    await assert_tokens_of(http, application, visit, ZOE.username, CEP)


@pytest.mark.clause("decided-realm-choice", "decided-page-scope-names-realm")
async def test_where_both_realms_are_open_one_button_leads_to_the_provider_without_a_script(
    open_page: OpenPage, application: Application, provider: IdentityProvider, http: httpx2.AsyncClient
) -> None:
    page = await open_page(NO_JAVASCRIPT)
    await page.goto(ask_for(ANY_REALM, application.callback))
    await expect_login(page)
    await provider_button(page).click()
    await log_in_by_provider(page, provider)
    await expect_consent(page)
    await expect_person(page, ZOE.username, PROVIDER)
    await allow(page)
    await assert_tokens_of(http, application, await application.await_callback(page), ZOE.username, CEP)


@pytest.mark.clause("decided-realm-choice", "decided-page-scope-names-realm")
async def test_where_both_realms_are_open_a_password_of_our_own_does_as_well_and_the_enter_key_sends_it(
    page: Page, application: Application, http: httpx2.AsyncClient
) -> None:
    await page.goto(ask_for(ANY_REALM, application.callback))
    await expect(provider_button(page)).to_be_visible()
    await username_field(page).fill(ALICE.username)
    await page.keyboard.press("Tab")
    await expect(password_field(page)).to_be_focused()
    await page.keyboard.type(ALICE.password)
    await page.keyboard.press("Enter")

    await expect_consent(page)
    await expect_person(page, ALICE.username, page_text("consent.realm_main"))
    await allow(page)
    visit = await application.await_callback(page)
    await assert_tokens_of(http, application, visit, ALICE.username, "realm:main role:enduser")


@pytest.mark.long
async def test_where_only_our_own_realm_is_asked_for_no_provider_is_offered(
    page: Page, application: Application
) -> None:
    await page.goto(ask_for("realm:main role:enduser", application.callback))
    await expect_login(page)
    await expect(page.get_by_role("button")).to_have_text([page_text("login.submit")])


@pytest.mark.clause("spec-4.1-denial", "spec-7.3-redirect-errors", "9207-2-iss-in-error-redirect")
async def test_who_denies_at_the_provider_sends_the_application_away_without_a_code(
    page: Page, application: Application, service: ServiceProcess, provider: IdentityProvider
) -> None:
    await page.goto(ask_for(ANY_REALM, application.callback))
    await provider_button(page).click()
    await log_in(page, ZOE)
    await expect_consent(page, OUR_NAME)
    await deny(page)

    visit = await application.await_callback(page)
    assert visit.query.keys() == {"error", "error_description", "state", "iss"}
    assert (visit.query["error"], visit.query["state"]) == ("access_denied", "a state")
    assert visit.query["iss"] == service.url


@pytest.mark.clause("spec-4.1-denial", "spec-7.3-redirect-errors")
@pytest.mark.long
async def test_who_denies_at_the_provider_gets_back_to_an_app_on_their_phone_by_a_link(
    page: Page, worker: Worker, service: ServiceProcess, provider: IdentityProvider
) -> None:
    """Chromium checks the redirects after the provider's form against its policy, which lacks the app's scheme."""
    callback = "com.example.app:/callback"
    native = await register(worker, "native", callback, scope=f"realm:main {CEP}", default_scope=CEP)
    await page.goto(authorization_url(native, callback, state="a state"))
    await log_in(page, ZOE)
    await expect_consent(page, OUR_NAME)
    await deny(page)

    await expect_heading(page, "refused.no_access_heading")
    await expect_at(page, service.url)
    await assert_usable(page)
    async with page.expect_event("requestfailed", lambda request: request.url.startswith(callback)) as gone:
        await page.get_by_role("link", name=page_text("refused.back")).click()
    answer = httpx2.URL((await gone.value).url).params
    assert (answer["error"], answer["state"], answer["iss"]) == ("access_denied", "a state", service.url)


@pytest.mark.long
async def test_who_is_signed_in_elsewhere_than_asked_for_logs_in_there_as_well(
    page: Page, application: Application, provider: IdentityProvider
) -> None:
    """The later login replaces the earlier one in one browser."""
    await page.goto(SESSIONS)
    await log_in(page, ALICE)
    await expect_heading(page, "sessions.heading")
    await page.goto(ask_for(CEP, application.callback))
    await log_in_by_provider(page, provider)
    await expect_consent(page)
    await expect_person(page, ZOE.username, PROVIDER)
    await page.goto(SESSIONS)
    await expect(page.get_by_text(page_text("sessions.signed_in_as").format(username=ZOE.username))).to_be_visible()


@pytest.mark.long
async def test_who_is_not_the_one_that_the_provider_remembers_signs_in_there_as_somebody_else(
    page: Page, application: Application, service: ServiceProcess, provider: IdentityProvider
) -> None:
    """The provider has its own session in the browser, and its own way to end it."""
    await page.goto(ask_for(CEP, application.callback))
    await log_in_by_provider(page, provider)
    await expect_person(page, ZOE.username, PROVIDER)
    await button(page, "consent.switch").click()

    await expect_consent(page, OUR_NAME)
    await button(page, "consent.switch").click()
    await log_in_by_provider(page, provider, YVES)
    await expect_consent(page)
    await expect_at(page, service.url)
    await expect_person(page, YVES.username, PROVIDER)


@pytest.mark.long
async def test_who_is_signed_in_already_is_asked_at_once_and_may_switch_to_a_password_of_our_own(
    page: Page, application: Application, provider: IdentityProvider
) -> None:
    await page.goto(ask_for(CEP, application.callback))
    await log_in_by_provider(page, provider)
    await expect_consent(page)
    await page.goto(ask_for(ANY_REALM, application.callback))
    await expect_person(page, ZOE.username, PROVIDER)
    await button(page, "consent.switch").click()
    await expect(provider_button(page)).to_be_visible()
    await log_in(page, ALICE)
    await expect_person(page, ALICE.username, page_text("consent.realm_main"))


@pytest.mark.long
async def test_sessions_are_seen_and_ended_by_who_signs_in_by_the_provider(
    page: Page, service: ServiceProcess, provider: IdentityProvider, http: httpx2.AsyncClient
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ZOE, CEP))
    await page.goto(SESSIONS)
    await provider_button(page).click()
    await log_in_by_provider(page, provider)

    await expect_heading(page, "sessions.heading")
    await expect_at(page, service.url)
    await page.get_by_role("button", name="End session of Phone App").click()
    await expect(page.get_by_text(page_text("sessions.none_heading"))).to_be_visible()
    assert_error(await PHONE_APP.refresh(http, tokens["refresh_token"]), 400, "invalid_grant")
    await button(page, "sessions.sign_out").click()
    await expect(page.get_by_role("status")).to_have_text(page_text("login.notice_signed_out_here"))


@pytest.mark.long
async def test_who_denies_at_the_provider_for_their_own_sake_reads_that_on_the_login_page(
    page: Page, service: ServiceProcess, provider: IdentityProvider
) -> None:
    await page.goto(SESSIONS)
    await provider_button(page).click()
    await log_in(page, ZOE)
    await deny(page)

    await expect_login(page)
    await expect_at(page, service.url)
    await expect(page.get_by_role("status")).to_have_text(page_text("login.notice_login_denied"))
    await provider_button(page).click()
    await expect_consent(page, OUR_NAME)
    await allow(page)
    await expect_heading(page, "sessions.heading")


@pytest.mark.clause("spec-2.2-realm-cep", "decided-cep-password-grant")
async def test_an_application_that_asks_for_the_password_itself_gets_tokens_of_the_providers_user(
    provider: IdentityProvider, http: httpx2.AsyncClient
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ZOE, CEP))
    assert tokens["scope"] == CEP
    seen = (await AUDITOR.introspect(http, tokens["access_token"])).json()
    assert (seen["active"], seen["realm"], seen["username"]) == (True, "cep", ZOE.username)
    tokens_of(await PHONE_APP.refresh(http, tokens["refresh_token"]))


@pytest.mark.parametrize(
    "credentials", [UserCredentials(ZOE.username, "a guess"), ALICE], ids=["a guess", "a user of realm main"]
)
async def test_a_password_that_is_none_at_the_provider_is_wrong(
    provider: IdentityProvider, http: httpx2.AsyncClient, credentials: UserCredentials
) -> None:
    assert_error(await PHONE_APP.log_in(http, credentials, CEP), 400, "invalid_grant")


async def test_browsers_take_the_provider_and_the_service_for_two_sites(
    service: ServiceProcess, provider: IdentityProvider
) -> None:
    """The effect of cookies on the way back would not show otherwise."""
    assert (urlsplit(service.url).hostname, urlsplit(provider.url).hostname) == ("127.0.0.1", "localhost")


async def test_keys_are_enough_to_go_to_the_provider(
    page: Page, application: Application, provider: IdentityProvider
) -> None:
    await page.goto(ask_for(ANY_REALM, application.callback))
    await expect(password_field(page)).to_have_value("")
    await button(page, "login.submit").focus()
    await page.keyboard.press("Tab")
    await expect(provider_button(page)).to_be_focused()
    await page.keyboard.press("Enter")
    await expect_at(page, provider.url)
    await expect_login(page)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(PROVIDER, id="usual", marks=pytest.mark.long),
        pytest.param("Donaudampfschifffahrtsgesellschaft" * 6, id="long"),
    ],
)
@pytest.mark.long
async def test_everybody_can_use_a_page_that_offers_a_provider(page: Page, application: Application, name: str) -> None:
    await page.goto(ask_for(ANY_REALM, application.callback))
    await provider_button(page).locator(".name").evaluate("(element, name) => element.textContent = name", name)
    assert await provider_button(page, name).inner_text() == f"Sign in with {name}", "the button has more than one line"
    await assert_usable(page)
