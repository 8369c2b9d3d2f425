"""The page of the user's sessions: it ends the chosen session, and no other."""

from __future__ import annotations

import re
from collections.abc import Mapping

import httpx2
import pytest
import redis
from playwright.async_api import Locator, Page, expect

from service.worker import Worker
from tests.pages.steps import expect_heading, set_login_cookies
from tests.support.browser import SESSIONS, page_text
from tests.support.clients_and_users import ALICE, PHONE_APP, WEB_SHOP, assert_error, is_live, tokens_of

Tokens = Mapping[str, str]
A_MOMENT_AGO = re.compile(f"{page_text('ago.now')}|[0-9]+ minutes? ago")


@pytest.fixture
async def phone(http: httpx2.AsyncClient) -> Tokens:
    return tokens_of(await PHONE_APP.log_in(http, ALICE))


@pytest.fixture
async def shop(http: httpx2.AsyncClient) -> Tokens:
    return tokens_of(await WEB_SHOP.log_in(http, ALICE))


@pytest.fixture
async def sessions_page(page: Page, worker: Worker, phone: Tokens, shop: Tokens) -> Page:
    """Alice at her page, which lists two applications."""
    await set_login_cookies(page, worker)
    await page.goto(SESSIONS)
    await expect_heading(page, "sessions.heading")
    return page


def row_of(page: Page, client_name: str) -> Locator:
    return page.locator("ul.sessions > li").filter(has=page.get_by_role("heading", name=client_name, exact=True))


async def test_ending_one_session_keeps_the_others(
    sessions_page: Page, http: httpx2.AsyncClient, store: redis.Redis, phone: Tokens, shop: Tokens
) -> None:
    await expect(row_of(sessions_page, "Web Shop")).to_contain_text(page_text("role_name.enduser"))
    await expect(row_of(sessions_page, "Web Shop")).to_contain_text(A_MOMENT_AGO)
    await row_of(sessions_page, "Phone App").get_by_role("button", name="End session of Phone App").click()

    await expect(row_of(sessions_page, "Phone App")).to_have_count(0)
    await expect(row_of(sessions_page, "Web Shop")).to_be_visible()
    assert not is_live(store, phone["access_token"])
    assert_error(await PHONE_APP.refresh(http, phone["refresh_token"]), 400, "invalid_grant")
    tokens_of(await WEB_SHOP.refresh(http, shop["refresh_token"]))
    await sessions_page.reload()
    await expect(row_of(sessions_page, "Web Shop")).to_be_visible()
    # Both clicks come before the navigation. A later click could meet another button on the next page.
    await (
        row_of(sessions_page, "Web Shop").get_by_role("button").evaluate("button => { button.click(); button.click() }")
    )
    await expect(sessions_page.get_by_text(page_text("sessions.none_heading"))).to_be_visible()
