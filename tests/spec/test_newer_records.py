"""Records of a newer version: this version answers with an outage, and never takes them for dead or stolen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx2
import pytest
import redis

from service.worker import Worker
from tests.conftest import make_code
from tests.support.browser import SESSIONS, Browser, Page, authorization_url, is_login_page
from tests.support.clients_and_users import (
    ALICE,
    AUDITOR,
    BOB,
    GATEWAY,
    PHONE_APP,
    PHONE_CALLBACK,
    REVOKE_ALL,
    VERIFY,
    WEB_SHOP,
    assert_error,
    bearer,
    is_live,
    tokens_of,
)

pytestmark = pytest.mark.clause("decided-newer-record", "decided-record-version", "decided-i10-outage-is-not-theft")


def later_version(record: str) -> str:
    """Return the record in the next version, and in another form."""
    version, _, lines = record.partition("\n")
    return f"{int(version) + 1}\nwhat-comes-first-now\n{lines}"


def cut_off(record: str) -> str:
    """Return a broken record, which lacks its last line."""
    return record.rpartition("\n")[0]


Change = Callable[[str], str]


@contextmanager
def replaced_by_newer(store: redis.Redis, pattern: str, change: Change = later_version) -> Iterator[None]:
    """Replace these records by those of a newer version inside the block. At its end they must be unchanged."""
    before = {str(key): str(store.get(key)) for key in store.scan_iter(pattern)}
    assert before
    after = {key: change(record) for key, record in before.items()}
    write_records(store, after)
    yield
    assert {key: store.get(key) for key in after} == after
    write_records(store, before)


def write_records(store: redis.Redis, records: dict[str, str]) -> None:
    for key, record in records.items():
        store.set(key, record, keepttl=True)


def assert_outage(*responses: httpx2.Response) -> None:
    for response in responses:
        assert_error(response, 503, "temporarily_unavailable")


async def test_newer_access_token_record_is_an_outage(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]
    with replaced_by_newer(store, "access:*"):
        assert_outage(
            await GATEWAY.introspect(http, access_token),
            await PHONE_APP.revoke(http, access_token),
            await http.post(REVOKE_ALL, headers=bearer(access_token)),
        )
        assert (await http.get(VERIFY, headers=bearer(access_token))).status_code == 503
    assert (await http.get(VERIFY, headers=bearer(access_token))).status_code == 200


async def test_a_code_is_neither_exchanged_nor_spent(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis
) -> None:
    code = await make_code(worker)
    with replaced_by_newer(store, "code:*"):
        assert_outage(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))
    assert tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))


async def test_the_second_use_of_a_code_ends_no_session(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis
) -> None:
    code = await make_code(worker)
    tokens = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))
    with replaced_by_newer(store, "redeemed:*"):
        assert_outage(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))
    assert tokens_of(await PHONE_APP.refresh(http, tokens["refresh_token"]))


async def test_a_refresh_token_does_not_introspect_as_dead(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    refresh_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]
    with replaced_by_newer(store, "family:*"):
        assert_outage(await AUDITOR.introspect(http, refresh_token))
    assert tokens_of(await PHONE_APP.refresh(http, refresh_token))


async def test_sessions_page_shows_all_live_sessions(
    http: httpx2.AsyncClient, browser: Browser, store: redis.Redis
) -> None:
    await WEB_SHOP.log_in(http, ALICE)
    await browser.sign_in()
    with replaced_by_newer(store, "family:*"):
        assert (await browser.open(SESSIONS)).status_code == 503
    assert "Web Shop" in Page(await browser.open(SESSIONS)).text


async def test_a_signed_in_browser_is_not_signed_out(browser: Browser, store: redis.Redis) -> None:
    await browser.sign_in()
    cookies = dict(browser.cookie_values)
    with replaced_by_newer(store, "browser:*"):
        assert (await browser.open(SESSIONS)).status_code == 503
        assert not is_login_page(await browser.open(authorization_url(scope="realm:main role:enduser"), method="GET"))
        assert browser.cookie_values == cookies
    assert ALICE.username in Page(await browser.open(SESSIONS)).text


async def test_a_consent_that_is_asked_for_waits(browser: Browser, store: redis.Redis) -> None:
    page = await browser.open_consent_page(authorization_url(scope="realm:main role:enduser"))
    with replaced_by_newer(store, "consent:*"):
        assert (await browser.allow(page)).status_code == 503
        assert (await browser.deny(page)).status_code == 503
    assert "code=" in (await browser.allow(page)).headers["location"]


@pytest.mark.parametrize("record", ["{}", '{"client_id":1}', "[]", "not JSON"])
async def test_unreadable_client_record_is_not_unknown_client(
    http: httpx2.AsyncClient, store: redis.Redis, record: str
) -> None:
    (key,) = store.scan_iter("*client:*web-shop*")
    written = str(store.get(key))
    store.set(key, record)
    assert_outage(await WEB_SHOP.log_in(http, ALICE))
    # An additional member of a newer version is left out.
    store.set(key, written.replace("{", '{"added":{"since":2},', 1))
    assert tokens_of(await WEB_SHOP.log_in(http, ALICE))


@pytest.mark.parametrize("change", [later_version, cut_off])
async def test_unreadable_session_record_is_left_untouched(
    http: httpx2.AsyncClient, store: redis.Redis, change: Change
) -> None:
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))
    second = tokens_of(await PHONE_APP.refresh(http, first["refresh_token"]))
    with replaced_by_newer(store, "family:*", change):
        for refresh_token in (first["refresh_token"], second["refresh_token"]):
            assert_outage(
                await PHONE_APP.refresh(http, refresh_token),
                await PHONE_APP.revoke(http, refresh_token),
            )
    assert tokens_of(await PHONE_APP.refresh(http, second["refresh_token"]))


@pytest.mark.parametrize("change", [later_version, cut_off])
async def test_revoke_all_beside_an_unreadable_session_is_not_reported_done(
    http: httpx2.AsyncClient, store: redis.Redis, change: Change
) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]
    with replaced_by_newer(store, "family:*", change):
        assert_outage(await http.post(REVOKE_ALL, headers=bearer(access_token)))
    assert (await http.post(REVOKE_ALL, headers=bearer(access_token))).status_code == 200


@pytest.mark.clause("decided-revoke-all-unreadable-record")
async def test_revoke_all_ends_all_but_a_newer_session(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    """The presented token stays for the repetition. Other users are not affected."""
    newer = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]
    (key,) = map(str, store.scan_iter("family:*"))
    users = (ALICE, ALICE, BOB)
    other, presented, bobs = [tokens_of(await PHONE_APP.log_in(http, user))["access_token"] for user in users]
    with replaced_by_newer(store, key):
        assert_outage(await http.post(REVOKE_ALL, headers=bearer(presented)))
        assert [is_live(store, each) for each in (newer, other, presented, bobs)] == [True, False, True, True]
    assert (await http.post(REVOKE_ALL, headers=bearer(presented))).status_code == 200
    assert [is_live(store, each) for each in (newer, other, presented, bobs)] == [False, False, False, True]
