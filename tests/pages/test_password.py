"""The form for a new password in a real browser: its fields and its errors."""

import pytest
from playwright.async_api import Locator, Page, expect

from service.worker import Worker
from tests.pages.browser import NO_JAVASCRIPT
from tests.pages.conftest import OpenPage
from tests.pages.steps import button, register_person, sign_in
from tests.support.browser import page_text

NEW = "a new password, 新"

pytestmark = pytest.mark.clause("decided-password-change")


def field(page: Page, name: str) -> Locator:
    return page.get_by_label(page_text(f"password.{name}"), exact=True)


async def fill_in(page: Page, current: str, new: str = NEW) -> None:
    await field(page, "current").fill(current)
    await field(page, "new").fill(new)


async def test_error_is_shown_at_its_focused_field(page: Page, worker: Worker) -> None:
    person = await register_person(worker, "dora@example.com")
    await sign_in(page, person)
    await fill_in(page, person.password, "short")
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
    for name in ("current", "new"):
        await expect(field(page, name)).to_have_value("")


async def test_button_shows_the_new_password(page: Page, worker: Worker) -> None:
    person = await register_person(worker, "dora@example.com")
    await sign_in(page, person)
    await fill_in(page, person.password)
    for kind, pressed in (("text", "true"), ("password", "false"), ("text", "true")):
        await button(page, "password.show").click()
        await expect(field(page, "new")).to_have_attribute("type", kind)
        await expect(button(page, "password.show")).to_have_attribute("aria-pressed", pressed)
    await expect(field(page, "repeated")).to_have_count(0)
    await button(page, "password.submit").click()

    await expect(page.get_by_text(page_text("login.notice_password_changed"))).to_be_visible()


async def test_new_password_is_typed_twice_without_scripts(open_page: OpenPage, worker: Worker) -> None:
    person, page = await register_person(worker, "dora@example.com"), await open_page(NO_JAVASCRIPT)
    await sign_in(page, person)
    await fill_in(page, person.password)
    await expect(button(page, "password.show")).to_be_hidden()
    await field(page, "repeated").fill("another")
    await button(page, "password.submit").click()

    await expect(field(page, "repeated")).to_have_accessible_description(page_text("password.repeated_differs"))
