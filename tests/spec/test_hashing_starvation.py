"""A flood of logins from one network leaves logins from other networks working."""

import asyncio
import os

import httpx2
import pytest

from tests.conftest import Clock, MakeSettings, serving
from tests.support.clients_and_users import ALICE, PHONE_APP, TOKEN, UserCredentials, login_form

PROXY = "10.0.0.1"
FLOOD = 50 * (os.cpu_count() or 1)
"""Concurrent logins. The service runs and queues about 26 for each core."""

LIMITS = {"TOKEN_SERVICE_TRUSTED_PROXIES": PROXY, "TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS": "10000/minute"}


async def log_in(http: httpx2.AsyncClient, credentials: UserCredentials, address: str) -> int:
    form = PHONE_APP.credentials | login_form(credentials)
    return (await http.post(TOKEN, data=form, headers={"X-Forwarded-For": address})).status_code


@pytest.mark.clause("decided-fair-hashing-queue")
@pytest.mark.usefixtures("real_hashes")
async def test_login_flood_affects_only_its_own_network(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    """Each guess comes from its own /64 within one /48, and fills the queue before the users log in."""
    async with serving(make_settings(**LIMITS), clock, address=PROXY) as http:
        flood = [
            asyncio.create_task(
                log_in(http, UserCredentials(f"user-{number}@example.com", "x"), f"2001:db8:1:{number:x}::1")
            )
            for number in range(FLOOD)
        ]
        for answer in asyncio.as_completed(flood):
            if await answer == 503:
                break
        users = await asyncio.gather(*(log_in(http, ALICE, f"203.0.113.{number}") for number in range(6)))
        statuses = await asyncio.gather(*flood)

    assert users == [200] * 6
    assert set(statuses) == {400, 503}
