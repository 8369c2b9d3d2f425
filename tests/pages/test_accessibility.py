"""Accessibility of every page in every state: for screen readers, dark mode, small screens, touch and keyboards."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx2
import pytest
import redis
from playwright.async_api import Browser, Page, expect

from service.worker import Worker
from tests.pages.accessibility import assert_usable
from tests.pages.application import Application
from tests.pages.browser import DESKTOP, NO_JAVASCRIPT, PHONE, Device, new_context
from tests.pages.conftest import StartService
from tests.pages.deployment import SHOP, Deployment
from tests.pages.steps import (
    button,
    expect_consent,
    expect_heading,
    expect_login,
    expect_refusal,
    log_in,
    register_person,
    set_login_cookies,
)
from tests.support.browser import LOGIN, SESSIONS, authorization_url, page_text, register
from tests.support.clients_and_users import ALICE, METER, PHONE_APP, WEB_SHOP, OAuthClient, UserCredentials
from tests.support.servers import ServiceProcess

EDGES = """buttons => buttons.map(button => getComputedStyle(button)).map(style => [
  style.borderTopStyle, parseFloat(style.borderTopWidth) >= 1, style.borderTopColor === style.backgroundColor])"""


FOOT = ["page.privacy", "page.legal"]


@dataclass(frozen=True)
class PageSetup:
    """The objects that the state of a page may need."""

    page: Page
    worker: Worker
    http: httpx2.AsyncClient
    store: redis.Redis
    deployment: Deployment
    application: Application

    @property
    def request_address(self) -> str:
        return authorization_url(SHOP, self.application.callback)

    async def open_consent_page(
        self, address: str = "", client_name: str = "Example Shop", credentials: UserCredentials = ALICE
    ) -> None:
        await set_login_cookies(self.page, self.worker, credentials)
        await self.page.goto(address or self.request_address)
        await expect_consent(self.page, client_name)


@pytest.fixture
def page_setup(
    page: Page,
    worker: Worker,
    http: httpx2.AsyncClient,
    store: redis.Redis,
    shared_deployment: Deployment,
    application: Application,
) -> PageSetup:
    return PageSetup(page, worker, http, store, shared_deployment, application)


async def start(page_setup: PageSetup) -> None:
    await page_setup.page.goto("/")
    await expect_heading(page_setup.page, "start.heading")


async def login(page_setup: PageSetup) -> None:
    await page_setup.page.goto(page_setup.request_address)
    await expect_login(page_setup.page)


async def login_of_an_unusable_account(page_setup: PageSetup) -> None:
    await set_login_cookies(page_setup.page, page_setup.worker, METER)
    await page_setup.page.goto(page_setup.request_address)
    await expect_login(page_setup.page)
    await expect(page_setup.page.get_by_role("status")).to_be_visible()


async def login_wrong(page_setup: PageSetup) -> None:
    await page_setup.page.goto(page_setup.request_address)
    await log_in(page_setup.page, UserCredentials(ALICE.username, "a guess"))
    await expect(page_setup.page.get_by_role("alert")).to_have_text(page_text("login.error_wrong"))


async def consent(page_setup: PageSetup) -> None:
    await page_setup.open_consent_page()


async def consent_to_several_roles_over_http(page_setup: PageSetup) -> None:
    callback = "http://shop.example/callback"
    plain = await register(page_setup.worker, "plain", callback, client_name="Plain Shop")
    await page_setup.open_consent_page(
        authorization_url(plain, callback, scope="role:enduser role:organisation"), "Plain Shop"
    )
    await expect(page_setup.page.get_by_text(page_text("consent.insecure_heading"))).to_be_visible()


async def consent_of_long_names(page_setup: PageSetup) -> None:
    """Open a consent page with names of the maximum length, without a place to break a line."""
    name = "Donaudampfschifffahrtsgesellschaft" * 6
    client = await register(page_setup.worker, "long" * 60, page_setup.application.callback, client_name=name)
    person = await register_person(page_setup.worker, "w" * 240 + "@example.com", name="M" * 200)
    await page_setup.open_consent_page(authorization_url(client, page_setup.application.callback), name, person)


async def refused(page_setup: PageSetup) -> None:
    """Open an error page with details for developers."""
    await page_setup.page.goto(authorization_url(OAuthClient("unknown"), page_setup.application.callback))
    await expect_refusal(page_setup.page, "unverified")


async def unknown_address(page_setup: PageSetup) -> None:
    await page_setup.page.goto("/nowhere")
    await expect_heading(page_setup.page, "refused.unknown_path_heading")


async def sessions_none(page_setup: PageSetup) -> None:
    await set_login_cookies(page_setup.page, page_setup.worker)
    await page_setup.page.goto(SESSIONS)
    await expect(page_setup.page.get_by_text(page_text("sessions.none_heading"))).to_be_visible()


async def sessions(page_setup: PageSetup) -> None:
    await PHONE_APP.log_in(page_setup.http, ALICE)
    await PHONE_APP.log_in(page_setup.http, ALICE)
    await WEB_SHOP.log_in(page_setup.http, ALICE)
    await set_login_cookies(page_setup.page, page_setup.worker)
    await page_setup.page.goto(SESSIONS)
    await expect(page_setup.page.locator("ul.sessions > li")).to_have_count(3)


async def password_wrong(page_setup: PageSetup) -> None:
    """Open the page of sessions with two browsers, and with errors in the form for a new password."""
    await set_login_cookies(page_setup.page, page_setup.worker)
    await set_login_cookies(page_setup.page, page_setup.worker)
    await page_setup.page.goto(SESSIONS)
    await button(page_setup.page, "password.submit").click()
    await expect(page_setup.page.get_by_text(page_text("password.new_missing"))).to_be_visible()


async def signed_out(page_setup: PageSetup) -> None:
    await set_login_cookies(page_setup.page, page_setup.worker)
    await page_setup.page.goto(SESSIONS)
    await button(page_setup.page, "sessions.sign_out").click()
    await expect(page_setup.page.get_by_role("status")).to_be_visible()


STATES: list[Callable[[PageSetup], Awaitable[None]]] = [
    login,
    login_of_an_unusable_account,
    login_wrong,
    consent_to_several_roles_over_http,
    refused,
    unknown_address,
    sessions,
    password_wrong,
    signed_out,
]
SIMILAR_STATES: list[Callable[[PageSetup], Awaitable[None]]] = [start, consent, consent_of_long_names, sessions_none]
"""States that are parts of those above, or differ from `login_wrong` and `refused` in their texts only."""


@pytest.mark.parametrize("reach", [*STATES, *(pytest.param(like, marks=pytest.mark.long) for like in SIMILAR_STATES)])
async def test_everybody_can_use_the_page_in_this_state(
    page_setup: PageSetup, reach: Callable[[PageSetup], Awaitable[None]]
) -> None:
    await reach(page_setup)
    await assert_usable(page_setup.page)


@pytest.mark.parametrize(
    ("address", "links"), [(SESSIONS, ["login.help", "login.register", *FOOT]), (LOGIN, ["login.help", *FOOT])]
)
async def test_everybody_can_use_the_links_for_help(
    page: Page, start_service: StartService, address: str, links: list[str]
) -> None:
    names = (f"TOKEN_SERVICE_PAGE_{name}_URL" for name in ("HELP", "REGISTER", "PRIVACY", "LEGAL"))
    service = start_service(**dict.fromkeys(names, "https://help.example/"))
    await page.goto(service.url + address)
    await expect(page.get_by_role("link")).to_have_text([page_text(link) for link in links])
    await assert_usable(page)


@pytest.mark.clause("decided-page-script")
@pytest.mark.parametrize(
    "device",
    [pytest.param(PHONE, id="phone"), pytest.param(DESKTOP, id="desktop"), pytest.param(NO_JAVASCRIPT, id="no script")],
)
async def test_sessions_fold_on_a_phone_and_times_are_local(
    browser: Browser, worker: Worker, service: ServiceProcess, device: Device
) -> None:
    context = await new_context(browser, device, service.url)
    page = await context.new_page()
    await set_login_cookies(page, worker)
    await page.goto(SESSIONS)
    heading = page.get_by_role("heading", name=page_text("password.heading"))
    is_utc = page.locator("time", has_text="UTC")
    await expect(heading).to_be_visible()
    await expect(is_utc).to_have_count(3 if device is NO_JAVASCRIPT else 0)
    if device is PHONE:
        await expect(button(page, "password.submit")).not_to_be_visible()
        await heading.click()
    await expect(button(page, "password.submit")).to_be_visible()
    await context.close()


async def test_pages_respect_reduced_motion(page_setup: PageSetup) -> None:
    await login(page_setup)
    durations = "() => getComputedStyle(document.querySelector('button')).transitionDuration"
    assert "0s" not in (await page_setup.page.evaluate(durations)).split(", ")
    await page_setup.page.emulate_media(reduced_motion="reduce")
    assert await page_setup.page.evaluate(durations) == "0s"


async def test_buttons_have_borders_in_forced_colours(page_setup: PageSetup) -> None:
    await page_setup.page.emulate_media(forced_colors="active")
    for reach in (login, consent, sessions_none):
        await reach(page_setup)
        edges = await page_setup.page.locator(".button").evaluate_all(EDGES)
        assert edges
        assert all(edge == ["solid", True, False] for edge in edges), edges
