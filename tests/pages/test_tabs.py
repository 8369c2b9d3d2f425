"""Several tabs of one browser: no tab invalidates another or answers for it."""

from __future__ import annotations

import httpx2
import pytest
import redis
from playwright.async_api import Page, expect

from service.worker import Worker
from tests.pages.application import Application
from tests.pages.deployment import SHOP
from tests.pages.steps import allow, deny, expect_consent, expect_refusal, log_in, open_consent_page, set_login_cookies
from tests.support.browser import authorization_url
from tests.support.clients_and_users import ALICE, BOB, PHONE_APP, tokens_of


async def test_two_tabs_with_two_applications_log_in_and_consent_in_turns(
    page: Page, application: Application, http: httpx2.AsyncClient
) -> None:
    """The session of the second login replaces that of the first, and the request of the first tab stays open."""
    other = await page.context.new_page()
    await page.goto(authorization_url(SHOP, application.callback, state="shop"))
    await other.goto(authorization_url(PHONE_APP, application.callback, state="phone"))
    await log_in(page)
    await expect_consent(page)
    await log_in(other)
    await expect_consent(other, "Phone App")

    await allow(other)
    visit = await application.await_callback(other)
    assert visit.query["state"] == "phone"
    tokens_of(await PHONE_APP.exchange(http, visit.query["code"], application.callback))

    await allow(page)
    visit = await application.await_callback(page)
    assert visit.query["state"] == "shop"
    tokens_of(await SHOP.exchange(http, visit.query["code"], application.callback))


@pytest.mark.long
async def test_a_signed_in_browser_answers_two_applications_in_two_tabs(
    page: Page, worker: Worker, application: Application, http: httpx2.AsyncClient
) -> None:
    await set_login_cookies(page, worker)
    other = await page.context.new_page()
    await page.goto(authorization_url(SHOP, application.callback, state="shop"))
    await other.goto(authorization_url(PHONE_APP, application.callback, state="phone"))
    await allow(other)
    phone = (await application.await_callback(other)).query
    await allow(page)
    shop = (await application.await_callback(page)).query

    assert (phone["state"], shop["state"]) == ("phone", "shop")
    tokens_of(await SHOP.exchange(http, shop["code"], application.callback))
    tokens_of(await PHONE_APP.exchange(http, phone["code"], application.callback))


async def test_a_login_in_one_tab_is_of_use_in_the_other(page: Page, application: Application) -> None:
    other = await page.context.new_page()
    await other.goto(authorization_url(PHONE_APP, application.callback))
    await open_consent_page(page, authorization_url(SHOP, application.callback))
    await other.reload()
    await expect_consent(other, "Phone App")


async def test_of_two_tabs_that_opened_before_any_cookie_one_starts_again(page: Page, application: Application) -> None:
    """Both requests were under way before either response arrived, so the second cookie replaced the first."""
    address = authorization_url(SHOP, application.callback)
    other = await page.context.new_page()
    await page.goto(address)
    await page.context.clear_cookies()
    await other.goto(address)

    await log_in(page)
    await expect_refusal(page, "forged")
    await log_in(other)
    await expect_consent(other)
    await page.goto(address)
    await expect_consent(page)


async def test_one_question_in_two_tabs_has_one_answer(
    page: Page, application: Application, http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    await open_consent_page(page, authorization_url(SHOP, application.callback))
    other, third = await page.context.new_page(), await page.context.new_page()
    await other.goto(page.url)
    await third.goto(page.url)
    await allow(page)
    code = (await application.await_callback(page)).query["code"]

    await allow(other)
    assert (await application.await_callback(other)).query["code"] == code
    await deny(third)
    await expect_refusal(third, "answered")
    assert sum(1 for _ in store.scan_iter("code:*")) == 1
    tokens_of(await SHOP.exchange(http, code, application.callback))


@pytest.mark.long
async def test_what_was_denied_in_one_tab_cannot_be_allowed_in_the_other(
    page: Page, application: Application, store: redis.Redis
) -> None:
    await open_consent_page(page, authorization_url(SHOP, application.callback))
    other = await page.context.new_page()
    await other.goto(page.url)
    await deny(page)
    await application.await_callback(page)

    await allow(other)
    await expect_refusal(other, "answered")
    assert sum(1 for _ in store.scan_iter("code:*")) == 0


@pytest.mark.clause("6749-3.1-owner-verified-first")
async def test_a_question_to_one_person_is_never_answered_by_the_next(
    page: Page, application: Application, store: redis.Redis
) -> None:
    """Bob signs in, in another tab, while Alice's request is still open."""
    address = authorization_url(SHOP, application.callback)
    other = await page.context.new_page()
    await other.goto(address)
    await open_consent_page(page, address, ALICE)
    await log_in(other, BOB)
    await expect_consent(other)

    await allow(page)
    await expect_refusal(page, "expired")
    await expect(page.get_by_text(ALICE.username)).to_have_count(0)
    assert sum(1 for _ in store.scan_iter("code:*")) == 0
