"""The checks of these tests themselves: each browser error and each obstacle is detected."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

from tests.pages.accessibility import assert_accessible, find_violations
from tests.pages.application import Application
from tests.pages.browser import DARK, DESKTOP, PHONE, BrowserErrors, Device
from tests.pages.conftest import OpenPage

POLICY = "default-src 'none'; img-src data:"
HEAD = f"""<!doctype html><html lang="en"><head><title>A page</title><link rel="icon" href="data:,">
<meta http-equiv="Content-Security-Policy" content="{POLICY}"></head>"""


@pytest.mark.parametrize(
    ("html", "complaint"),
    [
        (HEAD + "<script>0</script>", "Content Security Policy"),
        (HEAD + "<p style='color: red'>red</p>", "Content Security Policy"),
        ("<script>nobody.home()</script>", "nobody is not defined"),
        ("<img alt='' src='http://127.0.0.1:1/'>", "Failed to load resource"),
    ],
)
async def test_a_browser_complains(
    page: Page, application: Application, browser_errors: BrowserErrors, html: str, complaint: str
) -> None:
    application.serve("/", html)
    await page.goto(application.url)
    await browser_errors.await_texts(complaint)
    browser_errors.take()


@pytest.mark.parametrize("device", [DESKTOP, pytest.param(PHONE, marks=pytest.mark.long), DARK])
async def test_axe_finds_what_keeps_people_out_whatever_the_policy_says(
    open_page: OpenPage, application: Application, device: Device
) -> None:
    page = await open_page(device)
    await page.goto(application.callback)
    await assert_accessible(page)

    application.serve("/", HEAD + "<main><h1>Name?</h1><input></main>")
    await page.goto(application.url)
    assert [violation["id"] for violation in await find_violations(page)] == ["label"]
    with pytest.raises(AssertionError, match=r"label \(critical\)"):
        await assert_accessible(page)
