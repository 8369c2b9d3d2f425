"""A worker with an outdated record of a changed user, over HTTP: it grants nothing, and a retry succeeds.

`test_login_meanwhile.py` tests changes of clients, which are checked again after a login.
"""

from dataclasses import replace

import httpx2
import pytest
import redis

from service.crypto.password_hashing import hash_password
from service.worker import Worker
from tests.support.browser import (
    Browser,
    assert_refused,
    authorization_response,
    authorization_url,
    change_user,
    is_consent_page,
)
from tests.support.clients_and_users import ALICE, PHONE_APP, assert_error, tokens_of

CHANGED_ALICE = replace(ALICE, password="another password")


@pytest.fixture
def no_invalidations(http_worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Discard all invalidations, while the connection stays healthy."""
    for kind in http_worker.redis.router._caches:
        monkeypatch.setitem(http_worker.redis.router._caches, kind, lambda _: None)


async def fill_cache(http: httpx2.AsyncClient) -> None:
    for _ in range(2):
        tokens_of(await PHONE_APP.log_in(http, ALICE))


@pytest.mark.clause("decided-registry-change-seen", "decided-i1-one-winner")
async def test_changed_password_replaces_the_old_one_at_once(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis, no_invalidations: None
) -> None:
    await fill_cache(http)
    families = set(store.scan_iter("family:*"))
    await change_user(worker, ALICE, password_hash=hash_password(CHANGED_ALICE.password))

    assert_error(await PHONE_APP.log_in(http, ALICE), 400, "invalid_grant")

    assert set(store.scan_iter("family:*")) == families
    assert_error(await PHONE_APP.log_in(http, ALICE), 400, "invalid_grant")
    tokens_of(await PHONE_APP.log_in(http, CHANGED_ALICE))


@pytest.mark.clause("decided-registry-change-seen", "decided-disabled-user")
async def test_a_disabled_user_gets_nothing(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis, no_invalidations: None
) -> None:
    await fill_cache(http)
    families = set(store.scan_iter("family:*"))
    await change_user(worker, ALICE, disabled=True)

    for _ in range(2):
        assert_error(await PHONE_APP.log_in(http, ALICE), 400, "invalid_grant")
    assert set(store.scan_iter("family:*")) == families


@pytest.mark.clause("decided-registry-change-seen", "decided-i1-one-winner")
async def test_login_reads_the_record_in_redis(
    browser: Browser, worker: Worker, store: redis.Redis, no_invalidations: None
) -> None:
    await fill_cache(browser.http)
    form = await browser.open(authorization_url())
    await change_user(worker, ALICE, name="Alice the Second")

    answer = await browser.log_in(form)

    assert is_consent_page(answer)
    assert len([*store.scan_iter("browser:*")]) == 1


@pytest.mark.clause("decided-registry-change-seen", "decided-i1-one-winner")
async def test_consent_after_a_record_change_needs_a_retry(
    browser: Browser, worker: Worker, store: redis.Redis, no_invalidations: None
) -> None:
    page = await browser.open_consent_page(authorization_url())
    await browser.open(authorization_url())
    await change_user(worker, ALICE, roles=("enduser",))

    assert_refused(await browser.allow(page), 400, "expired")

    assert not [*store.scan_iter("code:*")]
    assert authorization_response(await browser.allow(await browser.open(authorization_url())))["code"]
