"""What a review of the pages as an attacker found, over HTTP: false comfort, and ways around a limit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlencode

import httpx2
import pytest
import redis

from service.app import Parts, assemble
from service.endpoints.page_limit import PAGES_PER_MINUTE
from service.realms.logins import AllowedAttempts
from tests.browser import (
    SESSIONS,
    Browser,
    Page,
    answer_of,
    ask,
    assert_refused,
    assert_sent_back,
    change_user,
    is_login_page,
    page_text,
    register,
)
from tests.cast import ALICE, BOB, PHONE_APP, PHONE_CALLBACK, SHOP_CALLBACK, WEB_SHOP, Person, assert_error, tokens_of
from tests.conftest import Clock, MakeSettings, client_of, lifespan_of, serving

SIGN_OUT = "/sessions/sign-out"
END_ALL = "/sessions/end-all"


@pytest.fixture
def browser(http: httpx2.AsyncClient) -> Browser:
    return Browser(http)


@pytest.fixture
async def strict(parts: Parts) -> AsyncIterator[httpx2.AsyncClient]:
    """A service that checks two passwords of a user name in an hour and no more."""
    hour_ms = 3_600_000
    parts.logins._allowed = AllowedAttempts((2, hour_ms), (2, hour_ms), (1000, hour_ms))
    app = assemble(parts)
    async with lifespan_of(app), client_of(app) as client:
        yield client


# False comfort


@pytest.mark.parametrize("action", [SIGN_OUT, END_ALL])
async def test_nobody_is_told_of_a_sign_out_that_ended_nothing(
    browser: Browser, http: httpx2.AsyncClient, action: str
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    page = await browser.sign_in()
    await browser.submit(page, SIGN_OUT, {})
    again = await browser.submit(page, action, {})

    assert is_login_page(again)
    assert "signed_out" not in str(again.url)
    assert "signed out" not in Page(again).text.lower()
    assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == 200


async def test_a_link_that_claims_a_sign_out_says_nothing(browser: Browser) -> None:
    page = await browser.sign_in()
    await browser.submit(page, SIGN_OUT, {})
    for proof in ("", "A" * 43):
        claimed = await browser.open(f"{SESSIONS}?" + urlencode({"signed_out": "everywhere", "proof": proof}))

        assert page_text("login.notice_signed_out_everywhere") not in Page(claimed).text


async def test_the_proof_of_one_sign_out_does_not_claim_the_other(browser: Browser) -> None:
    left = await browser.submit(await browser.sign_in(), SIGN_OUT, {})
    assert page_text("login.notice_signed_out_here") in Page(left).text
    claimed = await browser.open(str(left.url).replace("signed_out=here", "signed_out=everywhere"))

    assert page_text("login.notice_signed_out_everywhere") not in Page(claimed).text


@pytest.mark.clause("6749-10.12-csrf")
@pytest.mark.parametrize("action", [SIGN_OUT, END_ALL])
async def test_a_foreign_form_which_brings_no_cookie_takes_none_away(browser: Browser, action: str) -> None:
    """A browser sends no Lax cookie with it, but would take the cookies of the answer."""
    await browser.sign_in()
    answer = await Browser(browser.http).send(action, {"x": "1"})

    assert not any(cookie.startswith("ts_session=") for cookie in answer.headers.get_list("set-cookie"))
    assert all("ts_session" not in str(past.headers) for past in answer.history)


# Limits


async def test_a_login_counts_as_a_page_and_is_no_way_around_their_limit(browser: Browser, store: redis.Redis) -> None:
    page = await browser.open(ask())
    for _ in range(PAGES_PER_MINUTE - 1):
        await browser.open(SESSIONS)
    kept = len(list(store.scan_iter("browser:*")))
    refused = await browser.log_in(page)

    assert (refused.status_code, is_login_page(refused)) == (503, True)
    assert "retry-after" in refused.headers
    assert kept == len(list(store.scan_iter("browser:*"))) == 0


@pytest.mark.parametrize("kind", ["image", "iframe", "empty", "script"])
async def test_what_is_not_asked_for_as_a_page_is_none_and_counts_nowhere(
    browser: Browser, store: redis.Redis, kind: str
) -> None:
    for address in (ask(), SESSIONS):
        assert_refused(await browser.open(address, **{"Sec-Fetch-Dest": kind}), 403, "forged")

    assert not list(store.scan_iter("pending:*"))
    assert not list(store.scan_iter("address:*"))
    assert is_login_page(await browser.open(ask(), **{"Sec-Fetch-Dest": "document"}))


async def test_a_state_is_measured_as_it_is_kept(browser: Browser, store: redis.Redis) -> None:
    assert_sent_back(await browser.open(ask(state="\x01" * 1400)), "invalid_request")
    assert is_login_page(await browser.open(ask(state="\x01" * 1300)))
    (key,) = store.scan_iter("pending:*")

    assert int(store.memory_usage(key) or 0) < 12_000


@pytest.mark.parametrize("header", ["Cookie", "X-Anything"])
async def test_a_head_of_more_than_64_kib_is_refused_before_it_is_read(browser: Browser, header: str) -> None:
    assert (await browser.http.get("/healthz", headers={header: "a=b; " * 10_000})).status_code == 200

    assert_error(await browser.http.get(SESSIONS, headers={header: "a=b; " * 14_000}), 431, "invalid_request")


async def test_an_address_counts_as_a_part_of_the_head(browser: Browser) -> None:
    address = f"{ask()}&unknown={'x' * 60_000}"
    assert is_login_page(await browser.open(address))

    assert_error(await browser.http.get(address, headers={"X-Anything": "x" * 6_000}), 431, "invalid_request")


# Known devices


async def test_a_known_browser_is_known_no_more_once_the_password_is_another(
    strict: httpx2.AsyncClient, parts: Parts
) -> None:
    browser, stranger = Browser(strict), Browser(strict)
    await browser.submit(await browser.sign_in(), SIGN_OUT, {})
    for _ in range(3):
        last = await stranger.log_in(await stranger.open(SESSIONS), Person(ALICE.username, "guess"))
    assert last.status_code == 429
    page = await browser.open(SESSIONS)
    assert (await browser.log_in(page, Person(ALICE.username, "a slip"))).status_code == 200
    await change_user(parts, ALICE, name="Alice, changed")

    assert (await browser.log_in(page, ALICE)).status_code == 429


async def test_what_is_no_entry_of_ours_is_not_carried_along(browser: Browser) -> None:
    browser.plant("ts_device", "x" * 9000)
    await browser.sign_in()

    assert len(browser.cookie_values["ts_device"]) == 43 + 1 + 43


# Between page and click


@pytest.mark.clause("7636-4.4.1-challenge-missing")
async def test_a_client_that_must_use_pkce_by_now_gets_no_code_without_it(
    strict: httpx2.AsyncClient, parts: Parts
) -> None:
    browser = Browser(strict)
    app = await register(parts, "careful")
    page = await browser.reach_consent(ask(app))
    await register(parts, "careful", require_pkce=True)
    parts.clients._entries.clear()

    assert_sent_back(await browser.allow(page), "invalid_request")


async def test_a_login_in_one_tab_leaves_the_question_in_the_other_open(browser: Browser) -> None:
    one, other = await browser.open(ask(state="one")), await browser.open(ask(WEB_SHOP, SHOP_CALLBACK, state="other"))
    asked_first = await browser.log_in(one)
    asked_last = await browser.log_in(other, stay="yes")

    assert answer_of(await browser.allow(asked_last), SHOP_CALLBACK)["state"] == "other"
    assert "code" in answer_of(await browser.allow(asked_first))


async def test_a_login_as_somebody_else_closes_the_question_in_the_other_tab(browser: Browser) -> None:
    one, other = await browser.open(ask()), await browser.open(ask())
    asked_alice = await browser.log_in(one, ALICE)
    await browser.log_in(other, BOB)

    assert_refused(await browser.allow(asked_alice), 400, "expired")


# Addresses


async def test_a_port_that_no_browser_can_open_is_no_other_port(browser: Browser) -> None:
    assert is_login_page(await browser.open(ask(PHONE_APP, "http://127.0.0.1:65535/callback")))

    for port in ("65536", "99999"):
        refused = await browser.open(ask(PHONE_APP, f"http://127.0.0.1:{port}/callback"))
        assert_refused(refused, 400, "unverified")


@pytest.mark.clause("6819-5.2.4.3-client-shown")
@pytest.mark.parametrize(
    ("redirect_uri", "shown"),
    [
        (PHONE_CALLBACK, "127.0.0.1:9000"),
        ("com.example.app://shop.example/callback", "com.example.app://shop.example"),
        ("com.example.app:/callback", "com.example.app:"),
    ],
)
async def test_the_page_tells_an_application_from_a_host(
    browser: Browser, parts: Parts, redirect_uri: str, shown: str
) -> None:
    app = await register(parts, "native", redirect_uri)
    page = await browser.reach_consent(ask(app, redirect_uri))

    assert f"{page_text('consent.destination')} {shown}" in Page(page).text


async def test_an_https_address_in_capitals_is_https(make_settings: MakeSettings, clock: Clock, registry: None) -> None:
    async with serving(make_settings(TOKEN_SERVICE_WEB_URL="HTTPS://id.example.com"), clock) as http:
        cookie = (await http.get(SESSIONS)).headers["set-cookie"]

    assert cookie.startswith("__Host-ts_browser=")
    assert "Secure" in cookie
