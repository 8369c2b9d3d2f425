"""The form for a new password in a real browser: its fields and its errors."""

import pytest
from playwright.async_api import Locator, Page, expect

from service.worker import Worker
from tests.pages.steps import button, register_person, sign_in
from tests.support.browser import page_text

NEW = "a new password, 新"

pytestmark = pytest.mark.clause("decided-password-change")


def field(page: Page, name: str) -> Locator:
    return page.get_by_label(page_text(f"password.{name}"), exact=True)


async def fill_in(page: Page, current: str, new: str = NEW, repeated: str = NEW) -> None:
    for name, value in (("current", current), ("new", new), ("repeated", repeated)):
        await field(page, name).fill(value)


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
