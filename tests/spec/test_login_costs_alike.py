"""A failed login sends Redis the same commands for known and unknown users, so its duration reveals no account."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import httpx2
import pytest
import redis

from service.crypto.keyring import make_browser_secret
from tests.conftest import Clock, MakeSettings, serving
from tests.support.browser import DEVICE_COOKIE, SESSION_COOKIE, Browser, authorization_url
from tests.support.clients_and_users import ALICE, BOB, PHONE_APP, UserCredentials
from tests.support.redis_monitor import ONE_SERVER, recording_commands

pytestmark = ONE_SERVER

KNOWN = replace(BOB, password="wrong")
UNKNOWN = UserCredentials("nobody@example.com", "wrong")
FORGED_DEVICE = f"{make_browser_secret()}~{make_browser_secret()}"
LIMITS = {"TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS": "3/hour"}


def normalized_commands(commands: Sequence[str]) -> list[str]:
    """Return the commands without the names of keys, and without those of a worker's background tasks."""
    words = [command.split()[0].upper() for command in commands]
    return [word for word in words if word not in ("HELLO", "TIME", "XADD", "EVALSHA", "PEXPIRE", "XRANGE")]


async def commands_of_login(
    browser: Browser, store: redis.Redis, page: httpx2.Response, credentials: UserCredentials
) -> list[str]:
    with recording_commands(store) as commands:
        response = await browser.log_in(page, credentials)
        await asyncio.sleep(0)
    assert response.status_code in (200, 429)
    return normalized_commands(commands)


@pytest.mark.clause("decided-login-costs-alike", "6819-5.1.4.2.3-account-lock")
@pytest.mark.parametrize("device", ["none", "forged", "alice's"])
@pytest.mark.parametrize("is_throttled", [False, True], ids=["wrong", "throttled"])
async def test_unknown_users_cost_the_login_page_the_same(
    make_settings: MakeSettings, clock: Clock, registry: None, store: redis.Redis, device: str, is_throttled: bool
) -> None:
    async with serving(make_settings(**(LIMITS if is_throttled else {})), clock) as http:
        browser = Browser(http)
        if device == "alice's":
            await browser.sign_in(ALICE)
            browser.cookies.delete(SESSION_COOKIE)
        elif device == "forged":
            browser.set_cookie(DEVICE_COOKIE, FORGED_DEVICE)
        for _ in range(3):
            # This worker has cached Bob, if it caches users at all.
            await PHONE_APP.log_in(http, BOB if not is_throttled else UNKNOWN)
            page = await browser.open(authorization_url())
        known = [await commands_of_login(browser, store, page, KNOWN) for _ in range(3)]
        unknown = [await commands_of_login(browser, store, page, UNKNOWN) for _ in range(3)]

    assert known == unknown
    assert len({tuple(commands) for commands in known}) == 1


@pytest.mark.clause("decided-login-costs-alike")
async def test_unknown_user_costs_the_same_redis_commands(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    for _ in range(3):
        await PHONE_APP.log_in(http, BOB)
    found: list[list[str]] = []
    for person in (KNOWN, UNKNOWN):
        with recording_commands(store) as commands:
            await PHONE_APP.log_in(http, person)
        found.append(normalized_commands(commands))

    assert found[0] == found[1]
    assert found[0].count("HMGET") == 1
