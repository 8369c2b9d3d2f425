"""A login in a browser over HTTP: its lifetime, what ends it, and the cookies that carry it."""

from http.cookies import Morsel, SimpleCookie
from pathlib import Path

import httpx2
import pytest
import redis

from service.worker import Worker
from tests.conftest import SEED, Clock, MakeSettings, serving
from tests.support.browser import (
    BROWSER_COOKIE,
    DEVICE_COOKIE,
    LOGIN,
    SESSION_COOKIE,
    SESSIONS,
    Browser,
    Page,
    assert_refused,
    authorization_response,
    authorization_url,
    change_user,
    cookie_name,
    is_consent_page,
    is_login_page,
    page_text,
)
from tests.support.clients_and_users import ALICE, BOB, PHONE_APP, PHONE_CALLBACK, assert_error, revoke_all, tokens_of

HOUR = 3600
THIRTY_DAYS = 30 * 24 * HOUR
YEAR = 365 * 24 * HOUR


def set_cookies(*responses: httpx2.Response) -> dict[str, Morsel[str]]:
    """Return the cookies that these responses set, by name. A later one replaces an earlier one."""
    found: dict[str, Morsel[str]] = {}
    for response in responses:
        for header in response.headers.get_list("set-cookie"):
            found |= SimpleCookie(header)
    return found


async def log_in_step_by_step(http: httpx2.AsyncClient, **fields: str) -> tuple[httpx2.Response, httpx2.Response]:
    """Return the responses to the request and to the login form, before any redirect is followed."""
    opened = await http.get(authorization_url())
    form = Page(opened).find_form(LOGIN)
    filled = form.fields | {"username": ALICE.username, "password": ALICE.password} | fields
    cookie = "; ".join(f"{name}={morsel.value}" for name, morsel in set_cookies(opened).items())
    return opened, await http.post(form.action, data=filled, headers={"Cookie": cookie})


# Lifetime


LIFETIMES = {"TOKEN_SERVICE_LOGIN_SESSION_TTL": "100", "TOKEN_SERVICE_STAY_SIGNED_IN_TTL": "200"}


@pytest.mark.clause("decided-consent-every-time")
@pytest.mark.parametrize(
    ("variables", "stay", "seconds"),
    [({}, "", HOUR), ({}, "yes", THIRTY_DAYS), (LIFETIMES, "", 100), (LIFETIMES, "yes", 200)],
)
async def test_login_lasts_an_hour_thirty_days_or_as_configured(
    make_settings: MakeSettings, clock: Clock, registry: None, variables: dict[str, str], stay: str, seconds: int
) -> None:
    async with serving(make_settings(**variables), clock) as http:
        browser = Browser(http)
        await browser.open_consent_page(authorization_url(), stay=stay)
        clock.advance(seconds - 30)
        assert is_consent_page(await browser.open(authorization_url()))
        clock.advance(30)

        assert is_login_page(await browser.open(authorization_url()))


async def test_using_a_login_does_not_lengthen_it(browser: Browser, clock: Clock) -> None:
    await browser.sign_in()
    for _ in range(3):
        clock.advance(HOUR / 4)
        assert is_consent_page(await browser.open(authorization_url()))
    clock.advance(HOUR / 4)

    assert is_login_page(await browser.open(authorization_url()))


# Cookies


async def test_last_of_our_repeated_cookies_is_used(browser: Browser) -> None:
    await browser.sign_in()
    session, backslashes = browser.cookie_values[SESSION_COOKIE], "\\" * 1000
    own = SESSION_COOKIE
    others = f'a="{backslashes}"; {own}=old; x{own}=b;; ; {own}s=c; =; {own}\t=d; ts_session=e'
    headers = [
        (f"{others};{own}={session} ; b=c", True),
        (f"{others}; {own}={session}; {own}=another", False),
        (f'{own}="{session}"', False),
        (f"x{own}={session}; a=b,{own}={session}", False),
    ]
    secret = f"{BROWSER_COOKIE}={browser.cookie_values[BROWSER_COOKIE]}"

    for header, is_found in headers:
        page = await browser.http.get(SESSIONS, headers={"Cookie": f"{secret}; {header}"})
        browser.http.cookies.clear()
        assert (is_login_page(page), header) == (not is_found, header)


async def test_cookies_are_http_only_and_same_site(http: httpx2.AsyncClient) -> None:
    cookies = set_cookies(*await log_in_step_by_step(http))

    assert cookies.keys() == {BROWSER_COOKIE, SESSION_COOKIE, DEVICE_COOKIE}
    for cookie in cookies.values():
        assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["domain"]) == (True, "lax", "/", "")
        assert cookie["secure"] == ""
    assert cookies[SESSION_COOKIE]["max-age"] == ""
    assert {cookies[name]["max-age"] for name in (BROWSER_COOKIE, DEVICE_COOKIE)} == {str(YEAR)}


async def test_cookie_of_a_staying_user_is_persistent(http: httpx2.AsyncClient) -> None:
    cookies = set_cookies(*await log_in_step_by_step(http, stay="yes"))

    assert cookies[SESSION_COOKIE]["max-age"] == str(THIRTY_DAYS)


async def test_on_https_the_cookies_are_secure_and_of_this_host_alone(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    """The scheme of the web URL decides, even if a proxy speaks plain http to the service."""
    web_url = "https://id.example/people"
    settings = make_settings(TOKEN_SERVICE_WEB_URL=web_url)
    async with serving(settings, clock) as http:
        cookies = set_cookies(*await log_in_step_by_step(http))
        http.base_url = httpx2.URL("https://id.example")
        browser = Browser(http)
        page = await browser.open_consent_page(authorization_url())
        code = authorization_response(await browser.allow(page))["code"]

        assert (await PHONE_APP.exchange(http, code, PHONE_CALLBACK)).status_code == 200

    assert cookies.keys() == {cookie_name(name, web_url) for name in ("browser", "session", "device")}
    for cookie in cookies.values():
        assert (cookie["secure"], cookie["path"], cookie["domain"], cookie["httponly"]) == (True, "/", "", True)


async def test_unprefixed_cookie_is_ignored_on_https(make_settings: MakeSettings, clock: Clock, registry: None) -> None:
    web_url = "https://id.example"
    async with serving(make_settings(TOKEN_SERVICE_WEB_URL=web_url), clock) as http:
        http.base_url = httpx2.URL(web_url)
        browser, planted = Browser(http), Browser(http)
        await browser.sign_in()
        name = cookie_name("session", web_url)
        planted.set_cookie(name.removeprefix("__Host-"), browser.cookie_values[name])

        assert is_login_page(await planted.open(authorization_url()))


@pytest.mark.clause("decided-cookies-of-an-installation")
async def test_two_services_on_one_host_keep_both_logins(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    """Browsers send cookies to all ports of a host."""
    first, second = (make_settings(TOKEN_SERVICE_WEB_URL=f"http://127.0.0.1:{port}") for port in (31000, 31001))
    async with serving(first, clock) as here, serving(second, clock) as there:
        browser, other = Browser(here), Browser(there)
        other.cookies = browser.cookies
        consent = await browser.open_consent_page(authorization_url())
        await other.sign_in()

        assert "code" in authorization_response(await browser.allow(consent))


# Two tabs


async def test_login_as_another_user_invalidates_the_other_tab(browser: Browser) -> None:
    one, other = await browser.open(authorization_url()), await browser.open(authorization_url())
    asked_alice = await browser.log_in(one, ALICE)
    await browser.log_in(other, BOB)

    assert_refused(await browser.allow(asked_alice), 400, "expired")


# Ends of a session


async def test_a_new_login_ends_the_one_before_it_in_this_browser(browser: Browser, store: redis.Redis) -> None:
    login = await browser.open(authorization_url())
    await browser.log_in(login)
    former = browser.cookie_values[SESSION_COOKIE]
    await browser.log_in(login, BOB)

    assert browser.cookie_values[SESSION_COOKIE] != former
    assert len([*store.scan_iter("browser:*")]) == 1
    thief = Browser(browser.http)
    thief.set_cookie(SESSION_COOKIE, former)
    assert is_login_page(await thief.open(authorization_url()))


@pytest.mark.clause("decided-revoke-all-covers-logins")
async def test_revoke_all_ends_the_users_logins_in_every_browser(browser: Browser, http: httpx2.AsyncClient) -> None:
    other, bobs = Browser(http), Browser(http)
    await browser.sign_in()
    await other.sign_in(stay="yes")
    await bobs.sign_in(BOB)

    await revoke_all(http, tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"])

    assert is_login_page(await browser.open(authorization_url()))
    assert is_login_page(await other.open(authorization_url()))
    assert is_login_page(await other.open(SESSIONS))
    assert is_consent_page(await bobs.open(authorization_url()))


@pytest.mark.clause("decided-revoke-all-covers-logins", "decided-i7-revocation-is-final")
async def test_revoke_all_ends_the_consent_pages_that_are_open(
    browser: Browser, http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    page, denied = (
        await browser.open_consent_page(authorization_url()),
        await browser.open_consent_page(authorization_url()),
    )
    allowed = await browser.open_consent_page(authorization_url())
    code = authorization_response(await browser.allow(allowed))["code"]

    await revoke_all(http, tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"])

    for answer in (await browser.allow(page), await browser.deny(denied), await browser.allow(allowed)):
        assert_refused(answer, 403, "signed_out")
    assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")
    assert not [*store.scan_iter("browser:*"), *store.scan_iter("consent:*"), *store.scan_iter("code:*")]


@pytest.mark.clause("decided-revoke-all-covers-logins", "decided-revoke-all-later-tokens-live")
async def test_login_right_after_revoke_all_succeeds(browser: Browser, http: httpx2.AsyncClient) -> None:
    for _ in range(3):
        await revoke_all(http, tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"])
        code = authorization_response(await browser.allow(await browser.open_consent_page(authorization_url())))["code"]

        assert (await PHONE_APP.exchange(http, code, PHONE_CALLBACK)).status_code == 200


async def test_a_disabled_user_is_logged_in_nowhere(browser: Browser, worker: Worker) -> None:
    await browser.sign_in()
    await change_user(worker, ALICE, disabled=True)
    page = await browser.open(authorization_url())

    assert is_login_page(page)
    assert page_text("login.error_wrong") in Page(await browser.log_in(page)).text
    assert is_login_page(await browser.open(SESSIONS))


@pytest.mark.clause("decided-user-change-ends-tokens")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("password: correct horse battery staple", "password: another one", id="a new password"),
        pytest.param("roles: [enduser, organisation]", "roles: [enduser]", id="a role that was taken away"),
    ],
)
async def test_seed_change_ends_login_and_open_pages(
    make_settings: MakeSettings, clock: Clock, registry: None, tmp_path: Path, before: str, after: str
) -> None:
    seed = SEED.read_text(encoding="utf-8")
    edited = tmp_path / "seed.yaml"
    edited.write_text(seed.replace(before, after), encoding="utf-8")
    async with serving(make_settings(), clock) as http:
        browser = Browser(http)
        page = await browser.open_consent_page(authorization_url(), stay="yes")

    async with serving(make_settings(TOKEN_SERVICE_SEED_FILE=str(edited)), clock) as http:
        browser.http = http

        assert edited.read_text(encoding="utf-8") != seed
        assert_refused(await browser.allow(page), 403, "signed_out")
        assert is_login_page(await browser.open(authorization_url()))
