"""The pages in German, as a browser of a German speaker shows them and as an application asks for them."""

from __future__ import annotations

import httpx2
import pytest
from playwright.async_api import Page, expect

from service.worker import Worker
from tests.pages.accessibility import assert_usable
from tests.pages.application import Application
from tests.pages.browser import GERMAN, GERMAN_PHONE
from tests.pages.conftest import OpenPage
from tests.pages.deployment import SHOP
from tests.pages.steps import set_login_cookies
from tests.support.browser import SESSIONS, authorization_url, page_text
from tests.support.clients_and_users import ALICE, PHONE_APP, UserCredentials


def german(key: str) -> str:
    return page_text(key, "de")


async def expect_german(page: Page, heading: str, **values: str) -> None:
    await expect(page.get_by_role("heading", level=1)).to_have_text(german(heading).format(**values))
    await expect(page.locator("html")).to_have_attribute("lang", "de")


async def log_in_in_german(page: Page, credentials: UserCredentials = ALICE) -> None:
    await page.get_by_label(german("login.username")).fill(credentials.username)
    await page.get_by_label(german("login.password")).fill(credentials.password)
    await page.get_by_role("button", name=german("login.submit"), exact=True).click()


@pytest.mark.clause("decided-page-language")
async def test_a_german_browser_shows_german_pages(open_page: OpenPage, application: Application) -> None:
    page = await open_page(GERMAN)
    await page.goto("/")
    await expect_german(page, "start.heading")
    await page.get_by_role("link", name=german("start.sessions"), exact=True).click()
    await expect_german(page, "login.heading")
    await log_in_in_german(page, UserCredentials(ALICE.username, "a guess"))
    await expect(page.get_by_role("alert")).to_have_text(german("login.error_wrong"))
    await log_in_in_german(page)
    await expect_german(page, "sessions.heading")
    await page.goto(authorization_url(SHOP, application.callback))
    await expect_german(page, "consent.heading", client_name="Example Shop")
    await page.get_by_role("button", name=german("consent.allow"), exact=True).click()

    assert "code" in (await application.await_callback(page)).query


async def test_german_words_fit_on_a_small_screen(
    open_page: OpenPage, application: Application, worker: Worker, http: httpx2.AsyncClient
) -> None:
    await PHONE_APP.log_in(http, ALICE)
    request, unknown = authorization_url(SHOP, application.callback), authorization_url(PHONE_APP, "x:/y")
    for address, is_signed_in in ((SESSIONS, False), (SESSIONS, True), (request, True), (unknown, False), ("/", False)):
        page = await open_page(GERMAN_PHONE)
        if is_signed_in:
            await set_login_cookies(page, worker)
        await page.goto(address)
        await expect(page.locator("html")).to_have_attribute("lang", "de")
        await assert_usable(page)
