"""Logins in a browser at the identity provider."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.realms.login_steps import ASK_CEP, log_in_through_cep
from tests.support.browser import Browser, authorization_response, is_consent_page
from tests.support.clients_and_users import AUDITOR, PHONE_APP, PHONE_CALLBACK, tokens_of


async def describe(http: httpx2.AsyncClient, page: httpx2.Response, browser: Browser) -> dict[str, Any]:
    """Allow what the consent page asks. Returns the introspection response for the resulting access token."""
    assert is_consent_page(page), page.text or page.headers
    code = authorization_response(await browser.allow(page))["code"]
    access_token = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))["access_token"]
    described: dict[str, Any] = (await AUDITOR.introspect(http, access_token)).json()
    return described


async def log_in(http: httpx2.AsyncClient, browser: Browser, address: str = ASK_CEP) -> dict[str, Any]:
    return await describe(http, await log_in_through_cep(browser, address), browser)
