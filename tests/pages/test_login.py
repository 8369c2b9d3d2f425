"""The login page: wrong input, how long a browser stays signed in, and use by keyboard."""

from __future__ import annotations

import re
from collections.abc import Sequence

import httpx2
import pytest
import redis
from playwright.async_api import BrowserContext, Locator, Page, expect

from tests.conftest import read_server_ms
from tests.pages.application import Application
from tests.pages.browser import Device
from tests.pages.conftest import OpenPage
from tests.pages.deployment import SHOP
from tests.pages.steps import (
    button,
    expect_consent,
    expect_heading,
    expect_login,
    guess_until_throttled,
    log_in,
    password_field,
    sign_in,
    stay_box,
    username_field,
)
from tests.support.browser import SESSIONS, authorization_url, page_text
from tests.support.clients_and_users import ALICE, UserCredentials, tokens_of

WRONG_ALICE = UserCredentials(ALICE.username, "a guess")
UNKNOWN_USER = UserCredentials("nobody@example.com", ALICE.password)
STAY_SECONDS = 30 * 86_400
AT_LEAST_2_PIXELS = re.compile(r"([2-9]|[1-9][0-9])(\.[0-9]+)?px")


async def cookies_of(context: BrowserContext) -> dict[str, float]:
    """Return each cookie's expiry by name. -1 is the end of the browser."""
    return {cookie.get("name", ""): cookie.get("expires", 0) for cookie in await context.cookies()}


async def follow_focus(page: Page, stops: Sequence[Locator]) -> None:
    """Check that the Tab key focuses these elements in turn, with a visible focus."""
    for stop in stops:
        await expect(stop).to_be_focused()
        await expect(stop).not_to_have_css("outline-style", "none")
        await expect(stop).to_have_css("outline-width", AT_LEAST_2_PIXELS)
        await page.keyboard.press("Tab")


@pytest.mark.clause("decided-wrong-password-page", "spec-5.2-user-at-page")
async def test_a_wrong_password_and_an_unknown_user_read_the_same_and_can_try_again(page: Page) -> None:
    await page.goto(SESSIONS)
    for credentials in (WRONG_ALICE, UNKNOWN_USER):
        await log_in(page, credentials, stay=True)
        await expect(page.get_by_role("alert")).to_have_text(page_text("login.error_wrong"))
        await expect(page).to_have_title(re.compile(f"^Error: {page_text('login.heading')} "))
        await expect(username_field(page)).to_have_value(credentials.username)
        await expect(password_field(page)).to_have_value("")
        await expect(password_field(page)).to_be_focused()
        await expect(stay_box(page)).to_be_checked()
    await log_in(page)
    await expect_heading(page, "sessions.heading")


async def test_a_failed_login_can_be_reloaded_and_left_by_the_way_back(page: Page, application: Application) -> None:
    await page.goto(authorization_url(SHOP, application.callback))
    await log_in(page, WRONG_ALICE)
    await expect(page.get_by_role("alert")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("alert")).to_have_text(page_text("login.error_wrong"))
    await page.go_back()
    await expect(page.get_by_role("alert")).to_have_count(0)
    await log_in(page)
    await expect_consent(page)


async def test_what_was_left_empty_is_named_where_it_is_missing(page: Page) -> None:
    await page.goto(SESSIONS)
    await button(page, "login.submit").click()
    await expect(username_field(page)).to_have_accessible_description(page_text("login.username_missing"))
    await expect(password_field(page)).to_have_accessible_description(page_text("login.password_missing"))
    await expect(username_field(page)).to_be_focused()

    await username_field(page).fill(ALICE.username)
    await button(page, "login.submit").click()
    await expect(username_field(page)).to_have_accessible_description("")
    await expect(username_field(page)).to_have_value(ALICE.username)
    await expect(password_field(page)).to_have_accessible_description(page_text("login.password_missing"))
    await expect(password_field(page)).to_be_focused()


@pytest.mark.clause("decided-login-limit", "decided-limit-stops-checking")
async def test_who_guesses_too_often_has_to_wait_but_not_where_they_logged_in_before(
    open_page: OpenPage, http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    page, known = await open_page(), await open_page()
    await sign_in(known)
    await guess_until_throttled(http, store, ALICE)

    await page.goto(SESSIONS)
    await log_in(page)
    await expect(page.get_by_role("alert")).to_have_text(page_text("login.error_throttled"))
    await button(known, "sessions.sign_out").click()
    await log_in(known)
    await expect_heading(known, "sessions.heading")


@pytest.mark.parametrize("stay", [True, pytest.param(False, marks=pytest.mark.long)])
async def test_a_restarted_browser_is_signed_in_only_where_its_user_wanted_that(
    open_page: OpenPage, application: Application, store: redis.Redis, stay: bool
) -> None:
    page, restarted = await open_page(), await open_page()
    before = read_server_ms(store) / 1000
    await sign_in(page, stay=stay)
    ends, after = await cookies_of(page.context), read_server_ms(store) / 1000
    began = ends["ts_session"] - STAY_SECONDS
    assert before - 1 <= began <= after + 1 if stay else ends["ts_session"] == -1

    kept = [cookie for cookie in await page.context.cookies() if cookie.get("expires", 0) > 0]
    await restarted.context.add_cookies(
        [
            {"name": cookie.get("name", ""), "value": cookie.get("value", ""), "domain": "127.0.0.1", "path": "/"}
            for cookie in kept
        ]
    )
    await restarted.goto(authorization_url(SHOP, application.callback))
    await (expect_consent(restarted) if stay else expect_login(restarted))


async def test_who_signs_in_again_without_staying_is_forgotten_with_the_browser(page: Page) -> None:
    await sign_in(page, stay=True)
    await button(page, "sessions.sign_out").click()
    await log_in(page)
    await expect_heading(page, "sessions.heading")
    assert (await cookies_of(page.context))["ts_session"] == -1


async def test_password_managers_and_phones_know_what_the_fields_are_for(page: Page) -> None:
    await page.goto(SESSIONS)
    for name, value in (("autocomplete", "username"), ("autocapitalize", "none"), ("spellcheck", "false")):
        await expect(username_field(page)).to_have_attribute(name, value)
    await expect(password_field(page)).to_have_attribute("autocomplete", "current-password")
    await expect(password_field(page)).to_have_attribute("type", "password")


async def test_keys_are_enough_from_the_login_to_the_application(
    page: Page, application: Application, http: httpx2.AsyncClient
) -> None:
    await page.goto(authorization_url(SHOP, application.callback))
    fields = username_field(page), password_field(page), stay_box(page)
    await follow_focus(page, [*fields, button(page, "login.submit")])
    await username_field(page).focus()
    await page.keyboard.type(ALICE.username)
    await page.keyboard.press("Tab")
    await page.keyboard.type(ALICE.password)
    await page.keyboard.press("Tab")
    await page.keyboard.press("Space")
    await expect(stay_box(page)).to_be_checked()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")

    await expect_consent(page)
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await follow_focus(page, [button(page, "consent.switch"), button(page, "consent.deny")])
    await expect(button(page, "consent.allow")).to_be_focused()
    await page.keyboard.press("Space")
    code = (await application.await_callback(page)).query["code"]
    tokens_of(await SHOP.exchange(http, code, application.callback))


async def test_the_enter_key_sends_the_login_and_allows_nothing(page: Page, application: Application) -> None:
    """The page after the login has no default choice, so a key that is held down allows nothing."""
    await page.goto(authorization_url(SHOP, application.callback))
    await username_field(page).fill(ALICE.username)
    await password_field(page).fill(ALICE.password)
    await page.keyboard.press("Enter")
    await expect_consent(page)
    await page.keyboard.press("Enter")
    await expect_consent(page)
    assert await page.evaluate("() => document.activeElement === document.body")
    assert not application.visits


@pytest.mark.clause("6749-10.12-csrf")
async def test_cookies_are_kept_from_scripts_and_from_other_sites(page: Page) -> None:
    await sign_in(page)
    cookies = await page.context.cookies()
    assert {cookie.get("name") for cookie in cookies} == {"ts_browser", "ts_session", "ts_device"}
    for cookie in cookies:
        assert (cookie.get("httpOnly"), cookie.get("sameSite"), cookie.get("path")) == (True, "Lax", "/")
    assert await page.evaluate("() => document.cookie") == ""


async def test_a_browser_without_cookies_is_told_that_they_are_needed(
    open_page: OpenPage, application: Application
) -> None:
    page = await open_page(Device())
    await page.goto(authorization_url(SHOP, application.callback))
    await page.context.clear_cookies()
    await log_in(page)
    await expect_heading(page, "refused.forged_heading")
    await expect(page.get_by_text("with cookies allowed")).to_be_visible()
