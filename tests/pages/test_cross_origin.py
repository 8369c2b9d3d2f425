"""Applications in a real browser call the API by CORS: only pages of registered origins get answers."""

from typing import Any

import pytest
from playwright.async_api import Page

from tests.pages.application import Application
from tests.pages.browser import BrowserErrors
from tests.support.clients_and_users import ALICE, PHONE_APP, REVOKE_ALL, TOKEN, login_form
from tests.support.servers import ServiceProcess

pytestmark = pytest.mark.clause("decided-cors-origins", "decided-cors-preflight")

CALL = """
async ([url, form, token]) => {
  const headers = {"Sentry-Trace": "1", ...(token && {Authorization: `Bearer ${token}`})};
  try {
    const response = await fetch(url, {method: "POST", headers, body: form && new URLSearchParams(form)});
    return {status: response.status, body: await response.text(), challenge: response.headers.get("WWW-Authenticate")};
  } catch (error) {
    return {status: 0, body: error.name, challenge: null};
  }
}
"""
LOG_IN = PHONE_APP.credentials | login_form(ALICE)


async def call(page: Page, url: str, form: dict[str, str] | None = None, token: str = "") -> dict[str, Any]:
    """Send a POST from the page. Returns what its script can read, with the status 0 if the browser refuses."""
    outcome: dict[str, Any] = await page.evaluate(CALL, [url, form, token])
    return outcome


async def get_tokens(page: Page, service: ServiceProcess) -> dict[str, str]:
    answer: dict[str, str] = await page.evaluate(
        "async ([url, form]) => (await fetch(url, {method: 'POST', body: new URLSearchParams(form)})).json()",
        [service.url + TOKEN, LOG_IN],
    )
    return answer


async def test_a_page_of_a_registered_origin_logs_out_everywhere(
    page: Page, service: ServiceProcess, application: Application, browser_errors: BrowserErrors
) -> None:
    await page.goto(application.url)
    first, second = [await get_tokens(page, service) for _ in range(2)]

    ended = await call(page, service.url + REVOKE_ALL, token=first["access_token"])
    again = await call(page, service.url + REVOKE_ALL, token=second["access_token"])
    without = await call(page, service.url + REVOKE_ALL)

    assert ended == {"status": 200, "body": "", "challenge": None}
    assert again["status"] == 401
    assert 'error="invalid_token"' in again["challenge"]
    assert without == {"status": 401, "body": "", "challenge": 'Bearer realm="token-service"'}
    await browser_errors.await_texts("401")
    assert all("401" in text for text in browser_errors.take())
