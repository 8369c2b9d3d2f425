"""Limits per address count IPv6 addresses by the network that one subscriber controls: /64, /56 and /48."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import httpx2
import pytest

from tests.conftest import Clock, MakeSettings, serving
from tests.support.browser import SESSIONS, Browser, is_login_page
from tests.support.clients_and_users import ALICE, PHONE_APP, TOKEN, WEB_SHOP, UserCredentials, basic, login_form

PROXY = "10.0.0.1"
LIMITS = {
    "TOKEN_SERVICE_TRUSTED_PROXIES": PROXY,
    "TOKEN_SERVICE_LOGIN_ATTEMPTS": "2/hour",
    "TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS": "2/hour",
    "TOKEN_SERVICE_CLIENT_ATTEMPTS": "2/hour",
    "TOKEN_SERVICE_PAGES_PER_ADDRESS": "2/hour",
}
MANY = {name: "1000/hour" for name in LIMITS if name != "TOKEN_SERVICE_TRUSTED_PROXIES"}

Attempt = Callable[[httpx2.AsyncClient, str], Awaitable[bool]]


async def fail_as_unknown_user(http: httpx2.AsyncClient, address: str) -> bool:
    return await fail_to_log_in(http, address, UserCredentials(f"somebody-at-{address}@example.com", "wrong"))


async def fail_as_alice(http: httpx2.AsyncClient, address: str) -> bool:
    return await fail_to_log_in(http, address, replace(ALICE, password="wrong"))


async def fail_to_log_in(http: httpx2.AsyncClient, address: str, credentials: UserCredentials) -> bool:
    form = PHONE_APP.credentials | login_form(credentials)
    response = await http.post(TOKEN, data=form, headers={"X-Forwarded-For": address})
    assert response.status_code in (400, 429)
    return response.status_code == 400


async def fail_as_client(http: httpx2.AsyncClient, address: str) -> bool:
    headers = basic(WEB_SHOP.client_id, "wrong") | {"X-Forwarded-For": address}
    response = await http.post(TOKEN, data={"grant_type": "password"}, headers=headers)
    assert response.status_code in (401, 429)
    return response.status_code == 401


async def open_page(http: httpx2.AsyncClient, address: str) -> bool:
    return is_login_page(await Browser(http).open(SESSIONS, **{"X-Forwarded-For": address}))


LIMITED = {
    "TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS": fail_as_unknown_user,
    "TOKEN_SERVICE_LOGIN_ATTEMPTS": fail_as_alice,
    "TOKEN_SERVICE_CLIENT_ATTEMPTS": fail_as_client,
    "TOKEN_SERVICE_PAGES_PER_ADDRESS": open_page,
}
limited = pytest.mark.parametrize(("setting", "attempt"), LIMITED.items(), ids=LIMITED.keys())


@pytest.mark.clause("decided-ipv6-prefixes")
@limited
async def test_larger_ipv6_networks_have_larger_limits(
    make_settings: MakeSettings, clock: Clock, registry: None, setting: str, attempt: Attempt
) -> None:
    settings = make_settings(**(LIMITS | MANY | {setting: "2/hour"}))
    async with serving(settings, clock, address=PROXY) as http:
        one = [await attempt(http, f"2001:db8:1::{host}") for host in range(1, 4)]
        # The /56 has used two of its eight.
        small = [await attempt(http, f"2001:db8:1:{network:x}::1") for network in range(1, 8)]
        # The /48 has used eight of its thirty-two.
        large = [await attempt(http, f"2001:db8:1:{network:x}00::1") for network in range(1, 26)]
        elsewhere = await attempt(http, "2001:db8:2::1")

    assert one == [True, True, False]
    assert small == [True] * 6 + [False]
    assert large == [True] * 24 + [False]
    assert elsewhere


@pytest.mark.clause("decided-ipv6-prefixes")
async def test_a_mapped_ipv4_address_counts_as_that(make_settings: MakeSettings, clock: Clock, registry: None) -> None:
    settings = make_settings(**(LIMITS | MANY | {"TOKEN_SERVICE_PAGES_PER_ADDRESS": "2/hour"}))
    async with serving(settings, clock, address=PROXY) as http:
        spellings = ("198.51.100.1", "::ffff:198.51.100.1", "::ffff:c633:6401")
        assert [await open_page(http, address) for address in spellings] == [True, True, False]
        assert await open_page(http, "::ffff:198.51.100.2")
