"""GET and POST /authorization/login over HTTP: logins of users, and throttling of guesses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx2
import pytest
import redis

from service.crypto.password_hashing import hash_password
from service.protocol.user import User
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving
from tests.spec.wrong_logins import UNKNOWN_USER
from tests.support.browser import (
    DEVICE_COOKIE,
    LOGIN,
    SESSION_COOKIE,
    SESSIONS,
    Browser,
    Page,
    assert_refused,
    assert_sent_back,
    authorization_url,
    change_user,
    is_consent_page,
    is_login_page,
    page_text,
    register,
    wait_text,
)
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    PHONE_APP,
    SHOP_CALLBACK,
    WEB_SHOP,
    UserCredentials,
    assert_error,
)
from tests.support.password_hashes import FULL_COST, recording_hashes

WRONG = page_text("login.error_wrong")


def wrong(credentials: UserCredentials) -> UserCredentials:
    return replace(credentials, password="wrong")


async def fail(browser: Browser, times: int, credentials: UserCredentials = ALICE) -> httpx2.Response:
    """Send wrong passwords, each of which is checked. Returns the last page."""
    page = await browser.open(authorization_url())
    for _ in range(times):
        page = await browser.log_in(page, wrong(credentials))
        assert (page.status_code, WRONG in Page(page).text) == (200, True)
    return page


def assert_throttled(page: httpx2.Response, most_seconds: int = 60) -> None:
    wait = int(page.headers["retry-after"])
    assert 1 <= wait <= most_seconds
    assert (page.status_code, is_login_page(page)) == (429, True)
    assert page_text("login.error_throttled").format(wait=wait_text(wait)) in Page(page).text


# Logins


@pytest.mark.clause("spec-5.2-user-at-page", "spec-4.1-login-and-consent", "6749-10.2-owner-told")
async def test_login_page_names_its_client(browser: Browser) -> None:
    page = Page(await browser.open(authorization_url(WEB_SHOP, SHOP_CALLBACK)))
    form = page.find_form(LOGIN)

    assert "Web Shop" in page.text
    assert {"username", "password", "stay"} <= form.types.keys()
    assert (form.types["password"], form.fields["username"], form.fields["password"]) == ("password", "", "")
    assert "stay" not in form.fields


async def test_links_for_help_and_a_new_account_follow_the_settings(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    links = ["https://help.example/?topic=password#reset", "http://accounts.example/new"]
    settings = make_settings(TOKEN_SERVICE_PAGE_HELP_URL=links[0], TOKEN_SERVICE_PAGE_REGISTER_URL=links[1])
    async with serving(settings, clock) as http:
        browser = Browser(http)
        for address in (SESSIONS, authorization_url()):
            page = Page(await browser.open(address))
            assert page.links[:2] == links
            assert Page(await fail(browser, 1)).links[:2] == links
        assert Page(await browser.open(LOGIN)).links == links[:1]
        assert Page(await browser.open(authorization_url(client_id="nobody"))).links == []

    assert "Forgotten your password? Create an account" in page.text


async def test_no_links_without_the_settings(browser: Browser) -> None:
    assert Page(await browser.open(SESSIONS)).links == []
    assert Page(await browser.open(LOGIN)).links == []


@pytest.mark.clause("decided-user-names-one-form")
async def test_registered_user_name_is_shown_for_any_spelling(browser: Browser) -> None:
    page = await browser.log_in(await browser.open(authorization_url()), replace(ALICE, username="Alice@EXAMPLE.com"))

    assert is_consent_page(page)
    assert "alice@example.com" in Page(page).text


@pytest.mark.clause("decided-wrong-password-page")
async def test_wrong_password_shows_the_form_again(browser: Browser) -> None:
    page = await fail(browser, 1)
    form = Page(page).find_form(LOGIN)

    assert (form.fields["username"], form.fields["password"]) == (ALICE.username, "")
    assert 'wrong"' not in page.text
    assert is_consent_page(await browser.log_in(page, ALICE))


@pytest.mark.clause("decided-wrong-password-page")
async def test_login_page_does_not_reveal_users(browser: Browser, worker: Worker) -> None:
    await change_user(worker, BOB, disabled=True)
    page = await browser.open(authorization_url())
    responses = [
        await browser.log_in(page, credentials) for credentials in (wrong(ALICE), UNKNOWN_USER, wrong(BOB), BOB)
    ]
    texts = {
        response.text.replace(credentials.username, "?")
        for response, credentials in zip(responses, (ALICE, UNKNOWN_USER, BOB, BOB), strict=True)
    }

    assert {response.status_code for response in responses} == {200}
    assert len(texts) == 1
    assert not {tuple(response.headers.get_list("set-cookie")) for response in responses} - {()}


@pytest.mark.clause("decided-wrong-password-page", "decided-unknown-user-costs-the-same")
@pytest.mark.usefixtures("real_hashes")
async def test_unknown_user_costs_the_work_of_a_wrong_password(browser: Browser, worker: Worker) -> None:
    await worker.registry.users.put(User(realm="main", username=ALICE.username, password_hash=hash_password("right")))
    page = await browser.open(authorization_url())
    for credentials in (wrong(ALICE), UNKNOWN_USER):
        with recording_hashes() as costs:
            await browser.log_in(page, credentials)

        assert costs == [FULL_COST], credentials.username


@pytest.mark.parametrize(
    ("missing", "text_key"), [("username", "login.username_missing"), ("password", "login.password_missing")]
)
async def test_empty_field_is_shown_and_not_counted_as_failed_login(
    make_settings: MakeSettings, clock: Clock, registry: None, missing: str, text_key: str
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS="1/minute"), clock) as http:
        browser = Browser(http)
        page = await browser.open(authorization_url())
        for _ in range(3):
            page = await browser.log_in(page, ALICE, **{missing: ""})
            assert (page.status_code, page_text(text_key) in Page(page).text) == (200, True)

        assert is_consent_page(await browser.log_in(page, ALICE))


@pytest.mark.parametrize("name", ["", "x", "tspl1_000" + "A" * 44])
async def test_unknown_login_request_is_refused(browser: Browser, name: str) -> None:
    assert_refused(await browser.open(f"{LOGIN}?request={name}"), 400, "expired")
    assert_refused(await browser.send(LOGIN, {"request": name}), 400, "expired")


# Changes while the page is open


@pytest.mark.clause("6749-4.1.2.1-no-redirect", "6749-3.1.2.4-no-redirect")
async def test_removed_redirect_uri_gets_no_redirect(make_settings: MakeSettings, clock: Clock, worker: Worker) -> None:
    app = await register(worker, "changing")
    async with serving(make_settings(), clock) as before, serving(make_settings(), clock) as after:
        browser = Browser(before)
        page = await browser.open(authorization_url(app))
        await register(worker, "changing", "https://elsewhere.example/")
        browser.http = after

        assert_refused(await browser.log_in(page), 400, "unverified")


@pytest.mark.clause("6749-4.1.2.1-error")
async def test_lost_scope_is_reported_to_the_client(make_settings: MakeSettings, clock: Clock, worker: Worker) -> None:
    app = await register(worker, "changing")
    async with serving(make_settings(), clock) as before, serving(make_settings(), clock) as after:
        browser = Browser(before)
        page = await browser.open(authorization_url(app, scope="role:enduser", state="x"))
        await register(worker, "changing", scope="realm:main role:organisation")
        browser.http = after

        assert assert_sent_back(await browser.log_in(page), "invalid_scope")["state"] == "x"


# Guessing


@pytest.mark.clause("decided-login-limit")
async def test_the_page_and_the_password_grant_share_their_counters(
    browser: Browser, http: httpx2.AsyncClient, clock: Clock
) -> None:
    page = await fail(browser, 5)
    for _ in range(5):
        assert_error(await PHONE_APP.log_in(http, wrong(ALICE)), 400, "invalid_grant")

    assert_throttled(await browser.log_in(page, ALICE))
    assert_error(await PHONE_APP.log_in(http, ALICE), 429, "invalid_grant")


@pytest.mark.clause("decided-page-limit")
async def test_login_counts_against_the_page_limit(browser: Browser, store: redis.Redis) -> None:
    page = await browser.open(authorization_url())
    for _ in range(299):
        await browser.open(SESSIONS)
    kept = len(list(store.scan_iter("browser:*")))
    refused = await browser.log_in(page)

    assert (refused.status_code, is_login_page(refused)) == (503, True)
    assert "retry-after" in refused.headers
    assert kept == len(list(store.scan_iter("browser:*"))) == 0


# Known browsers


@asynccontextmanager
async def locked_out(
    make_settings: MakeSettings, clock: Clock, known: UserCredentials = ALICE
) -> AsyncIterator[tuple[httpx2.AsyncClient, Browser]]:
    """Yield a browser with an earlier login, after strangers at another address have used up all guesses for Alice."""
    settings = make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_USER="3/hour")
    async with serving(settings, clock) as http, serving(settings, clock, address="198.51.100.1") as strangers:
        browser = Browser(http)
        await browser.submit(await browser.sign_in(known), "/sessions/sign-out", {})
        await fail(Browser(strangers), 3)
        yield http, browser


async def test_failures_of_strangers_do_not_lock_out_known_browsers(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    async with locked_out(make_settings, clock) as (http, browser):
        stranger = Browser(http)

        assert_throttled(await stranger.log_in(await stranger.open(authorization_url()), ALICE), 3600)
        assert is_consent_page(await browser.log_in(await browser.open(authorization_url()), ALICE))


async def test_the_device_cookie_of_another_user_is_worth_nothing(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    async with locked_out(make_settings, clock, BOB) as (_, browser):
        assert_throttled(await browser.log_in(await browser.open(authorization_url()), ALICE), 3600)


async def test_a_forged_or_missing_device_cookie_is_worth_nothing(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    async with locked_out(make_settings, clock) as (http, known):
        device = known.cookie_values[DEVICE_COOKIE]
        name, _, signature = device.partition("~")
        bobs = Browser(http)
        await bobs.sign_in(BOB)
        bobs_name, _, bobs_signature = bobs.cookie_values[DEVICE_COOKIE].partition("~")
        forgeries = [
            "",
            name,
            f"{name}~",
            f"~{signature}",
            f"{name}~{signature[:-1]}",
            f"{name[:-1]}~{signature}",
            f"{name}~{bobs_signature}",
            f"{bobs_name}~{signature}",
            f"{name}\n~{signature}",
            f"x{device}",
            f"{device}.{device}",
        ]
        for forgery in forgeries:
            browser = Browser(http)
            browser.set_cookie(DEVICE_COOKIE, forgery.replace("\n", "%0A"))
            page = await browser.open(authorization_url())

            assert_throttled(await browser.log_in(page, ALICE), 3600)


async def test_known_browser_has_separate_limits(make_settings: MakeSettings, clock: Clock, registry: None) -> None:
    settings = make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS="2/minute", TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_USER="3/hour")
    async with serving(settings, clock) as http:
        known, other = Browser(http), Browser(http)
        for browser in (known, other):
            await browser.sign_in()
        known.cookies.delete(SESSION_COOKIE)

        page = await fail(known, 2)
        assert_throttled(await known.log_in(page, ALICE))
        clock.advance(60)
        page = await fail(known, 1)
        clock.advance(60)
        assert_throttled(await known.log_in(page, ALICE), 3600)
        assert is_consent_page(await other.open_consent_page(authorization_url()))
        assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
        clock.advance(3600)
        assert is_consent_page(await known.open_consent_page(authorization_url()))


async def test_new_password_makes_known_browsers_unknown(
    make_settings: MakeSettings, clock: Clock, worker: Worker
) -> None:
    async with locked_out(make_settings, clock) as (_, browser):
        page = await fail(browser, 1)
        await change_user(worker, ALICE, name="Alice, changed")

        assert_throttled(await browser.log_in(page, ALICE), 3600)
