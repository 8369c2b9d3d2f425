"""The pages in German, as the browser of a German speaker shows them."""

import httpx2
from playwright.async_api import expect

from service.worker import Worker
from tests.pages.accessibility import assert_usable
from tests.pages.application import Application
from tests.pages.browser import GERMAN_PHONE
from tests.pages.conftest import OpenPage
from tests.pages.deployment import SHOP
from tests.pages.steps import set_login_cookies
from tests.support.browser import SESSIONS, authorization_url
from tests.support.clients_and_users import ALICE, PHONE_APP


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
        await page.locator("details").evaluate_all("parts => parts.forEach(part => (part.open = true))")
        await assert_usable(page)
