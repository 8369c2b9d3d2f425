"""What changes during a login, over HTTP: rights that its client loses, and a revocation of all that its user has."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import msgspec
import pytest
import redis

from service.protocol.user import identify_user
from service.store.keys import login_key
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving
from tests.support.browser import Browser, authorization_url, is_consent_page, is_login_page
from tests.support.clients_and_users import ALICE, PHONE_APP, assert_error, revoke_user
from tests.support.invalidations import await_invalidations
from tests.support.waiting import until

COUNTER = login_key(identify_user(ALICE.realm, ALICE.username))


def count_script_calls(store: redis.Redis) -> int:
    statistics: dict[str, dict[str, int]] = store.info("commandstats")
    return statistics.get("cmdstat_evalsha", {"calls": 0})["calls"]


def occupy_password_checks(store: redis.Redis) -> None:
    """Occupy as many checks of Alice's password as are allowed at once."""
    store.set("lease:" + COUNTER, 1_000, px=60_000)


@pytest.mark.clause("6749-10.3-client-limits-scope", "6749-5.2-unauthorized-client")
@pytest.mark.parametrize(
    ("changes", "status", "error"),
    [
        pytest.param({"grant_types": ("refresh_token",)}, 400, "unauthorized_client", id="the grant"),
        pytest.param({"scope": "realm:main role:device"}, 400, "invalid_scope", id="the scope"),
        pytest.param(None, 401, "invalid_client", id="its registration"),
        pytest.param(None, 503, "temporarily_unavailable", id="its registration and all else"),
    ],
)
@pytest.mark.clause("decided-client-looked-at-again")
async def test_waiting_login_does_not_get_scope_lost_by_its_client(
    make_settings: MakeSettings,
    clock: Clock,
    worker: Worker,
    store: redis.Redis,
    changes: dict[str, object] | None,
    status: int,
    error: str,
) -> None:
    client = await worker.registry.clients.find(PHONE_APP.client_id)
    assert client is not None
    async with serving(make_settings(), clock) as http:
        assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
        families = set(store.scan_iter("family:*"))
        occupy_password_checks(store)
        calls = count_script_calls(store)
        login = asyncio.create_task(PHONE_APP.log_in(http, ALICE))
        await until(lambda: count_script_calls(store) > calls)
        if changes is None:
            lost = ["client:{registry}:" + PHONE_APP.client_id, "seed:{registry}"]
            store.delete(*lost[: 1 + (status == 503)])
        else:
            narrowed = msgspec.structs.replace(client, **changes)
            await worker.registry.clients.put(narrowed)
        await await_invalidations(worker)
        store.delete(COUNTER, "lease:" + COUNTER)

        assert_error(await login, status, error)

    assert set(store.scan_iter("family:*")) == families
    assert not store.exists(COUNTER)


@asynccontextmanager
async def held_checks(worker: Worker) -> AsyncIterator[None]:
    """Hold one check of a password inside the block: it waits for a thread. It is released at the end."""
    released, queue = threading.Event(), worker.passwords._queue
    holding: list[asyncio.Task[bool]] = []
    while queue._free:
        holding.append(asyncio.create_task(worker.passwords.run(released.wait, network=str(len(holding)))))
        await asyncio.sleep(0)
    try:
        await until(lambda: len(queue._waiting) == 1)
        yield
    finally:
        released.set()
        await asyncio.gather(*holding)


@pytest.mark.clause("decided-login-under-way-at-revocation", "decided-i7-revocation-is-final")
async def test_login_under_way_does_not_survive_a_revocation(
    http: httpx2.AsyncClient, http_worker: Worker, store: redis.Redis
) -> None:
    """The client is told to try again, and then gets a session."""
    login = asyncio.create_task(PHONE_APP.log_in(http, ALICE))
    async with held_checks(http_worker):
        revoked = await revoke_user(http, {"format": "email", "email": ALICE.username})

    assert revoked.status_code == 204
    assert_error(await login, 503, "temporarily_unavailable")
    assert not list(store.scan_iter("family:*"))
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200


@pytest.mark.clause("decided-login-under-way-at-revocation", "decided-i7-revocation-is-final")
async def test_browser_login_under_way_does_not_survive_a_revocation(
    http: httpx2.AsyncClient, browser: Browser, http_worker: Worker, store: redis.Redis
) -> None:
    """The form is shown again, and then leads to the consent page."""
    form = await browser.open(authorization_url())
    login = asyncio.create_task(browser.log_in(form, ALICE))
    async with held_checks(http_worker):
        revoked = await revoke_user(http, {"format": "email", "email": ALICE.username})

    assert revoked.status_code == 204
    page = await login
    assert (page.status_code, is_login_page(page)) == (503, True)
    assert not list(store.scan_iter("browser:*"))
    assert is_consent_page(await browser.log_in(page, ALICE))
