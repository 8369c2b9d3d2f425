"""The form for a new password in a real browser: its fields, its errors, and what follows."""

from __future__ import annotations

import httpx2
import pytest
from playwright.async_api import Locator, Page, expect

from service.worker import Worker
from tests.pages.browser import NO_JAVASCRIPT
from tests.pages.conftest import OpenPage
from tests.pages.steps import (
    button,
    expect_heading,
    expect_login,
    log_in,
    register_person,
    sign_in,
)
from tests.support.browser import SESSIONS, page_text
from tests.support.clients_and_users import PHONE_APP, UserCredentials, assert_error, tokens_of

NEW = "a new password, 新"

pytestmark = pytest.mark.clause("decided-password-change")


def field(page: Page, name: str) -> Locator:
    return page.get_by_label(page_text(f"password.{name}"), exact=True)


async def fill_in(page: Page, current: str, new: str = NEW, repeated: str = NEW) -> None:
    for name, value in (("current", current), ("new", new), ("repeated", repeated)):
        await field(page, name).fill(value)


async def test_new_password_keeps_only_this_browser_signed_in(
    open_page: OpenPage, worker: Worker, http: httpx2.AsyncClient
) -> None:
    """Without JavaScript, as all pages work."""
    person = await register_person(worker, "carla@example.com")
    page, other = await open_page(NO_JAVASCRIPT), await open_page()
    await sign_in(page, person)
    await sign_in(other, person)
    tokens = tokens_of(await PHONE_APP.log_in(http, person))
    await page.reload()
    await expect(page.locator("ul.sessions > li")).to_have_count(1)
    await fill_in(page, person.password)
    await button(page, "password.submit").click()

    await expect_heading(page, "sessions.heading")
    await expect(page.get_by_role("status")).to_have_text(page_text("login.notice_password_changed"))
    await expect(page.locator("ul.sessions > li")).to_have_count(0)
    await expect(page.locator("ul.browsers > li")).to_have_count(1)
    assert_error(await PHONE_APP.refresh(http, tokens["refresh_token"]), 400, "invalid_grant")
    await other.goto(SESSIONS)
    await expect_login(other)
    await log_in(other, person)
    await expect(other.get_by_role("alert")).to_have_text(page_text("login.error_wrong"))
    await log_in(other, UserCredentials(person.username, NEW))
    await expect_heading(other, "sessions.heading")


async def test_error_is_shown_at_its_focused_field(page: Page, worker: Worker) -> None:
    person = await register_person(worker, "dora@example.com")
    await sign_in(page, person)
    await fill_in(page, person.password, "short", "short")
    await button(page, "password.submit").click()
    await expect(field(page, "new")).to_be_focused()
    await expect(field(page, "new")).to_have_attribute("aria-invalid", "true")
    await expect(field(page, "new")).to_have_accessible_description(
        f"{page_text('password.hint_other')} {page_text('password.too_short_other')}".format(count=8)
    )
    title = page_text("page.title_with_error")
    await expect(page).to_have_title(title.format(heading=page_text("sessions.heading"), service="Token Service"))
    await fill_in(page, "a guess")
    await page.keyboard.press("Enter")

    await expect(field(page, "current")).to_be_focused()
    await expect(field(page, "current")).to_have_accessible_description(page_text("password.error_wrong"))
    for name in ("current", "new", "repeated"):
        await expect(field(page, name)).to_have_value("")
