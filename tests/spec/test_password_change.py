"""A new password at /sessions/: who may set one, what is asked, and what ends with it."""

import asyncio
import io

import httpx2
import pytest
import redis

from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving, serving_worker
from tests.support.at_rest import read_everything
from tests.support.browser import (
    BROWSER_COOKIE,
    SESSION_COOKIE,
    SESSIONS,
    Browser,
    Page,
    assert_refused,
    authorization_url,
    change_user,
    is_consent_page,
    is_login_page,
    page_text,
    wait_text,
)
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    PHONE_APP,
    WEB_SHOP,
    UserCredentials,
    assert_error,
    is_live,
    tokens_of,
)
from tests.support.events import events_of
from tests.support.redis_monitor import ONE_SERVER

PASSWORD = "/sessions/password"
NEW = "a new password of Alice's"
FORM = {"current": ALICE.password, "new": NEW, "repeated": NEW}
GUESSES = 10

pytestmark = pytest.mark.clause("decided-password-change")


async def change_password(browser: Browser, page: httpx2.Response | None = None, **fields: str) -> httpx2.Response:
    """Send the form on the page of sessions. Its fields are right but for `fields`."""
    return await browser.submit(page or await browser.open(SESSIONS), PASSWORD, FORM | fields)


def assert_says(page: httpx2.Response, *keys: str, status: int = 200, **values: object) -> None:
    """Assert that the page of sessions shows these texts."""
    text = Page(page).text
    assert page.status_code == status, text
    assert page_text("password.heading") in text
    for key in keys:
        assert page_text(key).format(**values) in text


async def assert_password(http: httpx2.AsyncClient, password: str, *, is_right: bool = True) -> None:
    response = await PHONE_APP.log_in(http, UserCredentials(ALICE.username, password))
    assert response.status_code == (200 if is_right else 400), response.text


async def test_a_new_password_ends_everything_but_this_browser(
    browser: Browser, http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    other, bobs = Browser(http), Browser(http)
    await other.sign_in(stay="yes")
    await bobs.sign_in(BOB)
    sessions = [(client, tokens_of(await client.log_in(http, ALICE))) for client in (PHONE_APP, WEB_SHOP)]
    bobs_tokens = tokens_of(await PHONE_APP.log_in(http, BOB))
    page = await change_password(browser, await browser.sign_in())

    assert page.url.path == SESSIONS
    assert_says(page, "login.notice_password_changed", "sessions.none")
    for client, tokens in sessions:
        assert not is_live(store, tokens["access_token"])
        assert_error(await client.refresh(http, tokens["refresh_token"]), 400, "invalid_grant")
    assert is_login_page(await other.open(authorization_url()))
    assert is_consent_page(await bobs.open(authorization_url()))
    assert (await PHONE_APP.refresh(http, bobs_tokens["refresh_token"])).status_code == 200
    await assert_password(http, ALICE.password, is_right=False)
    await assert_password(http, NEW)


async def test_this_browser_gets_a_new_login_and_the_old_one_is_over(
    browser: Browser, http: httpx2.AsyncClient
) -> None:
    page = await browser.sign_in()
    consent = await browser.open(authorization_url())
    thief = Browser(http)
    thief.cookies = httpx2.Cookies(browser.cookies)
    before = browser.cookie_values
    await change_password(browser, page)

    assert browser.cookie_values[SESSION_COOKIE] != before[SESSION_COOKIE]
    assert browser.cookie_values[BROWSER_COOKIE] == before[BROWSER_COOKIE]
    assert is_login_page(await thief.open(SESSIONS))
    assert_refused(await browser.allow(consent), 400, "expired")
    assert is_consent_page(await browser.open(authorization_url()))


@pytest.mark.parametrize("stays", [False, True])
async def test_stay_signed_in_survives_the_browser(browser: Browser, stays: bool) -> None:
    page = await (browser.sign_in(stay="yes") if stays else browser.sign_in())
    await change_password(browser, page)
    [cookie] = [each for each in browser.cookies.jar if each.name == SESSION_COOKIE]

    assert (cookie.expires is not None) == stays


async def test_a_browser_that_is_known_stays_known(browser: Browser, http: httpx2.AsyncClient) -> None:
    """Guesses of strangers do not lock the user out of the browser in which the password was changed."""
    await change_password(browser, await browser.sign_in())
    for _ in range(GUESSES):
        await PHONE_APP.log_in(http, UserCredentials(ALICE.username, "a guess"))
    assert_error(await PHONE_APP.log_in(http, UserCredentials(ALICE.username, NEW)), 429, "invalid_grant")
    page = await browser.submit(await browser.open(SESSIONS), "/sessions/sign-out", {})

    assert not is_login_page(await browser.log_in(page, UserCredentials(ALICE.username, NEW)))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"current": ""}, "current_missing"),
        ({"repeated": ""}, "repeated_missing"),
        ({"new": "seven77", "repeated": "seven77"}, "too_short_other"),
        ({"new": "x" * 1025, "repeated": "x" * 1025}, "too_long_other"),
        ({"new": "eight\x0088", "repeated": "eight\x0088"}, "not_text"),
        ({"new": "Basketball", "repeated": "Basketball"}, "common"),
        ({"new": "Alice@example.com", "repeated": "Alice@example.com"}, "own_name"),
        ({"new": ALICE.password, "repeated": ALICE.password}, "not_new"),
        ({"repeated": f"{NEW} "}, "repeated_differs"),
    ],
)
async def test_a_form_with_a_mistake_is_shown_again_and_checks_nothing(
    browser: Browser, http: httpx2.AsyncClient, store: redis.Redis, fields: dict[str, str], error: str
) -> None:
    page = await browser.sign_in()
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    shown = await change_password(browser, page, **fields)

    count = 1024 if error == "too_long_other" else 8
    assert_says(shown, f"password.{error}", count=count)
    assert "Error: " in Page(shown).text
    assert shown.text.count('aria-invalid="true"') == shown.text.count("autofocus") == 1
    for value in {**FORM, **fields}.values():
        assert not value or value not in shown.text
    assert not list(store.scan_iter("login:*"))
    assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == 200
    await assert_password(http, ALICE.password)


@pytest.mark.clause("decided-password-min-length")
async def test_the_least_length_is_the_operators(make_settings: MakeSettings, clock: Clock, registry: None) -> None:
    settings = make_settings(TOKEN_SERVICE_PASSWORD_MIN_LENGTH="12")
    async with serving(settings, clock) as http:
        browser = Browser(http)
        page = await browser.sign_in()
        assert_says(page, "password.hint_other", count=12)
        page = await change_password(browser, page, new="eleven chrs", repeated="eleven chrs")
        assert_says(page, "password.too_short_other", count=12)
        page = await change_password(browser, page, new="twelve chars", repeated="twelve chars")

        assert_says(page, "login.notice_password_changed")


@pytest.mark.parametrize("wrong", [f"{ALICE.password} ", NEW, "x" * 5000])
async def test_the_current_password_must_be_right(
    browser: Browser, http: httpx2.AsyncClient, json_logs: io.StringIO, wrong: str
) -> None:
    page = await browser.sign_in()
    events_of(json_logs)
    new = "quite another password"
    shown = await change_password(browser, page, current=wrong, new=new, repeated=new)
    event = {"username": ALICE.username, "realm": "main", "reason": "password_wrong", "address": "203.0.113.7"}

    assert_says(shown, "password.error_wrong")
    assert events_of(json_logs) == [("login_failed", event)]
    await assert_password(http, ALICE.password)


@pytest.mark.clause("decided-password-change-counts")
async def test_wrong_current_passwords_are_throttled(
    browser: Browser, http: httpx2.AsyncClient, json_logs: io.StringIO, clock: Clock
) -> None:
    page = await browser.sign_in()
    for guess in range(GUESSES):
        assert_says(await change_password(browser, page, current=f"guess {guess}"), "password.error_wrong")
    events_of(json_logs)
    refused = await change_password(browser, page)

    wait = wait_text(int(refused.headers["retry-after"]))
    assert refused.status_code == 429
    assert page_text("password.error_throttled").format(wait=wait) in Page(refused).text
    assert [event for event, _ in events_of(json_logs)] == ["login_throttled"]
    # The login form of this browser has the same counters.
    left = await browser.submit(page, "/sessions/sign-out", {})
    login = await browser.log_in(left)
    assert (login.status_code, "Too many failed attempts" in Page(login).text) == (429, True)
    clock.advance(60)
    page = await browser.log_in(left)
    assert_says(await change_password(browser, page), "login.notice_password_changed")


async def test_a_form_that_is_sent_again_changes_nothing(browser: Browser, http: httpx2.AsyncClient) -> None:
    page = await browser.sign_in()
    old = Browser(http)
    old.cookies = httpx2.Cookies(browser.cookies)
    await change_password(browser, page)

    assert_refused(await change_password(browser, page), 403, "forged")
    assert is_login_page(await change_password(old, page))
    await assert_password(http, NEW)


@pytest.mark.parametrize("changes", [{"disabled": True}, {"password_hash": None}])
async def test_failed_redis_authentication_changes_no_record(
    browser: Browser, worker: Worker, changes: dict[str, object]
) -> None:
    page = await browser.sign_in()
    await change_user(worker, ALICE, **changes)
    before = await worker.logins.find_user(ALICE.realm, ALICE.username)
    answer = await change_password(browser, page)

    assert is_login_page(answer) or page_text("password.error_wrong") in Page(answer).text
    assert await worker.logins.find_user(ALICE.realm, ALICE.username) == before


@ONE_SERVER
async def test_overtaken_password_change_is_reported(browser: Browser, worker: Worker, store: redis.Redis) -> None:
    """The record changes while the request waits for the lock, after its check of the current password."""
    page = await browser.sign_in()
    async with worker.registry.make_lock():
        with store.monitor() as monitor:  # type: ignore[no-untyped-call]
            change = asyncio.create_task(change_password(browser, page))
            while "lock:{registry}" not in (await asyncio.to_thread(monitor.next_command))["command"]:
                pass
        await change_user(worker, ALICE, name="Another")
    shown = await change

    assert_says(shown, "password.error_busy", status=503)
    await assert_password(browser.http, ALICE.password)


async def test_while_the_registry_is_locked_nothing_is_changed(http_worker: Worker, worker: Worker) -> None:
    http_worker.password_change.lock_wait_seconds = 0
    async with serving_worker(http_worker) as http:
        browser = Browser(http)
        page = await browser.sign_in()
        async with worker.registry.make_lock():
            refused = await change_password(browser, page)

        assert_says(refused, "password.error_busy", status=503)
        assert int(refused.headers["retry-after"]) > 0
        assert_says(await change_password(browser, page), "login.notice_password_changed")


async def test_a_change_is_reported_and_no_password_is_kept_or_logged(
    browser: Browser, json_logs: io.StringIO, store: redis.Redis
) -> None:
    page = await browser.sign_in()
    events_of(json_logs)
    await change_password(browser, page)
    written = json_logs.getvalue()
    user = {"username": ALICE.username, "realm": "main", "address": "203.0.113.7"}

    assert events_of(json_logs) == [("password_changed", user), ("login_succeeded", user)]
    for secret in (NEW, ALICE.password):
        assert secret not in written
        assert not [text for text in read_everything(store) if secret in text]
