"""Records of a newer version: this version answers with an outage, and never takes them for dead or stolen."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx2
import pytest
import redis

from tests.support.browser import SESSIONS, Browser, Page, authorization_url, is_login_page
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    GATEWAY,
    PHONE_APP,
    REVOKE_ALL,
    VERIFY,
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


@contextmanager
def replaced(store: redis.Redis, pattern: str, change: Callable[[str], str] = later_version) -> Iterator[None]:
    """Change the record of this key inside the block. At its end the changed record must be left."""
    (key,) = store.scan_iter(pattern)
    before = str(store.get(key))
    store.set(key, change(before), keepttl=True)
    yield
    assert store.get(key) == change(before)
    store.set(key, before, keepttl=True)


def assert_outage(*responses: httpx2.Response) -> None:
    for response in responses:
        assert_error(response, 503, "temporarily_unavailable")


async def test_newer_access_token_record_is_an_outage(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]
    with replaced(store, "access:*"):
        assert_outage(
            await GATEWAY.introspect(http, access_token),
            await PHONE_APP.revoke(http, access_token),
            await http.post(REVOKE_ALL, headers=bearer(access_token)),
        )
        assert (await http.get(VERIFY, headers=bearer(access_token))).status_code == 503
    assert (await http.get(VERIFY, headers=bearer(access_token))).status_code == 200


async def test_a_signed_in_browser_is_not_signed_out(browser: Browser, store: redis.Redis) -> None:
    await browser.sign_in()
    cookies = dict(browser.cookie_values)
    with replaced(store, "browser:*"):
        assert (await browser.open(SESSIONS)).status_code == 503
        assert not is_login_page(await browser.open(authorization_url(scope="realm:main role:enduser"), method="GET"))
        assert browser.cookie_values == cookies
    assert ALICE.username in Page(await browser.open(SESSIONS)).text


@pytest.mark.parametrize("change", [later_version, cut_off])
async def test_unreadable_session_record_is_left_untouched(
    http: httpx2.AsyncClient, store: redis.Redis, change: Callable[[str], str]
) -> None:
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))
    second = tokens_of(await PHONE_APP.refresh(http, first["refresh_token"]))
    with replaced(store, "family:*", change):
        for refresh_token in (first["refresh_token"], second["refresh_token"]):
            assert_outage(await PHONE_APP.refresh(http, refresh_token), await PHONE_APP.revoke(http, refresh_token))
    tokens = tokens_of(await PHONE_APP.refresh(http, second["refresh_token"]))
    with replaced(store, "family:*", change):
        assert_outage(await http.post(REVOKE_ALL, headers=bearer(tokens["access_token"])))
    assert (await http.post(REVOKE_ALL, headers=bearer(tokens["access_token"]))).status_code == 200


@pytest.mark.clause("decided-revoke-all-unreadable-record")
async def test_revoke_all_ends_all_but_a_newer_session(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    """The presented token stays for the repetition. Other users are not affected."""
    newer = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]
    (key,) = map(str, store.scan_iter("family:*"))
    users = (ALICE, ALICE, BOB)
    other, presented, bobs = [tokens_of(await PHONE_APP.log_in(http, user))["access_token"] for user in users]
    with replaced(store, key):
        assert_outage(await http.post(REVOKE_ALL, headers=bearer(presented)))
        assert [is_live(store, each) for each in (newer, other, presented, bobs)] == [True, False, True, True]
    assert (await http.post(REVOKE_ALL, headers=bearer(presented))).status_code == 200
    assert [is_live(store, each) for each in (newer, other, presented, bobs)] == [False, False, False, True]
