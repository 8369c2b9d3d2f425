"""The login page: wrong input, how long a browser stays signed in, and use by keyboard."""

import re
from collections.abc import Sequence

import httpx2
import pytest
from playwright.async_api import Locator, Page, expect

from tests.pages.application import Application
from tests.pages.deployment import SHOP
from tests.pages.steps import (
    allow,
    button,
    expect_consent,
    expect_heading,
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
AT_LEAST_2_PIXELS = re.compile(r"([2-9]|[1-9][0-9])(\.[0-9]+)?px")


async def follow_focus(page: Page, stops: Sequence[Locator]) -> None:
    """Check that the Tab key focuses these elements in turn, with a visible focus."""
    for stop in stops:
        await expect(stop).to_be_focused()
        await expect(stop).not_to_have_css("outline-style", "none")
        await expect(stop).to_have_css("outline-width", AT_LEAST_2_PIXELS)
        await page.keyboard.press("Tab")


@pytest.mark.clause("decided-wrong-password-page", "spec-5.2-user-at-page")
async def test_wrong_password_and_unknown_user_read_the_same(page: Page) -> None:
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


@pytest.mark.clause("decided-log-in-again")
async def test_person_logs_in_again_and_may_go_back(page: Page, application: Application) -> None:
    await sign_in(page)
    await page.goto(authorization_url(SHOP, application.callback, prompt="login"))
    await log_in(page)
    await expect_consent(page)
    await page.go_back()
    await log_in(page)
    await expect_consent(page)
    await button(page, "consent.switch").click()
    await log_in(page)
    await expect_consent(page)
    await allow(page)

    assert "code" in (await application.await_callback(page)).query


async def test_empty_fields_are_named(page: Page) -> None:
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


async def test_login_fields_have_autocomplete_hints(page: Page) -> None:
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
