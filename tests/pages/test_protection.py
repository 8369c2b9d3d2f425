"""Attacks of other sites on users of the pages, none of which succeeds."""

import httpx2
import pytest
import redis
from playwright.async_api import Page, expect

from service.worker import Worker
from tests.pages.application import Application
from tests.pages.browser import BrowserErrors
from tests.pages.deployment import SHOP
from tests.pages.steps import (
    allow,
    expect_consent,
    expect_heading,
    expect_login,
    expect_refusal,
    log_in,
    set_login_cookies,
)
from tests.support.browser import CONSENT, SESSIONS, SWITCH, authorization_url
from tests.support.browser import Browser as BrowserWithoutScreen
from tests.support.browser import Page as PageWithoutScreen
from tests.support.clients_and_users import ALICE, BOB, UserCredentials
from tests.support.servers import ServiceProcess

SAME_SITE, OTHER_SITE = "same site", "other site"


def address_of(application: Application, where: str) -> str:
    """Return an address at another site. Browsers take another port for the same site, and send our cookies to it."""
    return application.url if where == SAME_SITE else application.other_site


async def open_attacker_page(
    page: Page, application: Application, where: str, action: str, fields: dict[str, str]
) -> None:
    """Open an attacker's page, which sends a form as soon as it loads."""
    inputs = "".join(f'<input type="hidden" name="{name}" value="{value}">' for name, value in fields.items())
    application.serve(
        "/lure", f'<form method="post" action="{action}">{inputs}</form><script>document.forms[0].submit()</script>'
    )
    async with page.expect_navigation(url=action):
        await page.goto(f"{address_of(application, where)}/lure", wait_until="commit")


@pytest.mark.clause("6749-10.12-csrf")
@pytest.mark.parametrize(("where", "kind"), [(SAME_SITE, "forged"), (OTHER_SITE, "signed_out")])
async def test_cross_site_form_gives_no_consent(
    page: Page,
    worker: Worker,
    http: httpx2.AsyncClient,
    service: ServiceProcess,
    application: Application,
    store: redis.Redis,
    where: str,
    kind: str,
) -> None:
    """Even with the name of the open page the form fails, since the browser sends no cookie from another site."""
    bob = BrowserWithoutScreen(http)
    own = PageWithoutScreen(await bob.open_consent_page(authorization_url(SHOP, application.callback), BOB)).find_form(
        CONSENT
    )
    await set_login_cookies(page, worker)
    await page.goto(authorization_url(SHOP, application.callback))
    asked = await page.locator("input[name=request]").get_attribute("value") or ""

    for csrf in (own.fields["csrf"], ""):
        fields = {"request": asked, "csrf": csrf, "decision": "allow"}
        await open_attacker_page(page, application, where, service.url + CONSENT, fields)
        await expect_refusal(page, kind)
    await open_attacker_page(
        page, application, where, service.url + SWITCH, {"request": asked, "csrf": own.fields["csrf"]}
    )
    await expect_refusal(page, kind)
    assert not list(store.scan_iter("code:*"))
    await page.goto(authorization_url(SHOP, application.callback))
    await expect_consent(page)


@pytest.mark.clause("6749-10.12-csrf")
async def test_cross_site_link_only_opens_the_question(
    page: Page, worker: Worker, service: ServiceProcess, application: Application, store: redis.Redis
) -> None:
    """Users stay signed in, since a browser sends the cookies when they follow a link."""
    await set_login_cookies(page, worker)
    application.serve(
        "/", f'<a href="{service.url}{authorization_url(SHOP, application.callback)}&decision=allow">a link</a>'
    )
    await page.goto(application.other_site)
    await page.get_by_role("link").click()
    await expect_consent(page)
    assert not list(store.scan_iter("code:*"))


CALLBACK_PAGE = """<!doctype html><link rel="icon" href="data:,">
<script>opener.postMessage(location.search.slice(1), "*")</script>"""
OPENER_PAGE = """<!doctype html><link rel="icon" href="data:,">
<button onclick="opened = window.open('{address}')">Log in</button>
<script>answer = new Promise(got => window.onmessage = message => got(message.data))</script>"""


async def open_popup(page: Page, application: Application, address: str) -> Page:
    """Open the address in a popup of a page of the application."""
    application.serve("/", OPENER_PAGE.format(address=address))
    await page.goto(application.url)
    async with page.context.expect_page() as opened:
        await page.get_by_role("button").click()
    return await opened.value


@pytest.mark.clause("decided-popups-keep-opener")
async def test_callback_in_a_popup_reports_to_its_opener(
    page: Page, service: ServiceProcess, application: Application
) -> None:
    application.serve("/callback", CALLBACK_PAGE)
    address = service.url + authorization_url(SHOP, application.callback, state="s")
    popup = await open_popup(page, application, address)
    await log_in(popup, UserCredentials(ALICE.username, "a guess"))
    await expect(popup.get_by_role("alert")).to_be_visible()
    await log_in(popup)
    await expect_consent(popup)
    assert not await page.evaluate("() => opened.closed")

    await allow(popup)
    answer = httpx2.QueryParams(await page.evaluate("() => answer"))
    assert (answer["state"], answer["iss"], "code" in answer) == ("s", service.url, True)


@pytest.mark.clause("decided-sessions-cut-off-opener")
async def test_sessions_page_and_its_opener_are_separated(
    page: Page, service: ServiceProcess, application: Application
) -> None:
    popup = await open_popup(page, application, service.url + SESSIONS)
    await log_in(popup)
    await expect_heading(popup, "sessions.heading")
    assert await popup.evaluate("() => window.opener === null")
    assert await page.evaluate("() => opened.closed")


async def test_pages_run_no_injected_script(
    page: Page, worker: Worker, application: Application, browser_errors: BrowserErrors
) -> None:
    await page.goto(SESSIONS)
    await expect_login(page)
    await assert_inert(page, browser_errors)
    await set_login_cookies(page, worker)
    for address in ("/", SESSIONS, authorization_url(SHOP, application.callback)):
        await page.goto(address)
        await assert_inert(page, browser_errors)


async def assert_inert(page: Page, browser_errors: BrowserErrors) -> None:
    """Check that the page needs no exception from the policy, and that injected content is blocked."""
    await expect(
        page.locator("script:not([src]), style, [style], [onclick], [onload], base, iframe, object")
    ).to_have_count(0)
    assert browser_errors.take() == []
    await page.evaluate(
        """() => {
          document.body.append(Object.assign(document.createElement("script"), {textContent: "window.ran = true"}));
          document.body.setAttribute("style", "color: rgb(1, 2, 3)");
        }"""
    )
    ran, colour = await page.evaluate("() => [window.ran === true, getComputedStyle(document.body).color]")
    assert not ran
    assert colour != "rgb(1, 2, 3)"
    await browser_errors.await_texts("inline script", "inline style")
    browser_errors.take()
