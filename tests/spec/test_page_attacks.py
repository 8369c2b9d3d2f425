"""Attacks on the login and consent pages over HTTP, one in each test."""

import io
import re
from dataclasses import replace
from urllib.parse import quote, urlsplit

import httpx2
import pytest
import redis

from service.protocol.token_form import digest_token
from service.web.pages.pending_logins import PROVIDER, PendingLogin
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving
from tests.spec.wrong_logins import WRONG_ALICE
from tests.support.browser import (
    AUTHORIZATION,
    BROWSER_COOKIE,
    CONSENT,
    DEVICE_COOKIE,
    ISSUER,
    LOGIN,
    SESSION_COOKIE,
    SESSIONS,
    SWITCH,
    Browser,
    Page,
    assert_refused,
    assert_sent_back,
    authorization_response,
    authorization_url,
    change_user,
    is_consent_page,
    is_login_page,
    page_text,
    register,
)
from tests.support.clients_and_users import ALICE, BOB, PHONE_APP, PHONE_CALLBACK, UserCredentials, tokens_of

OTHER_SHOP_CALLBACK = "https://shop.example:8443/other?keep=this"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'`&amp;{{7*7}}"


# Codes in other hands


# Manipulated requests


STATES = [
    pytest.param("a\r\nSet-Cookie: ts_session=evil\r\n\r\n<html>", id="line ends"),
    pytest.param("a\x00b\x7f\x1b[31m", id="NUL and control characters"),
    pytest.param("žluťoučký кон 馬 🐎 \u202e\ufeff\U0010ffff" * 40, id="2 KB of Unicode"),
    pytest.param("&code=evil&iss=https://evil.example&error=access_denied#x", id="parameters"),
    pytest.param("x" * 8190, id="almost 8 KiB"),
]


@pytest.mark.clause(
    "spec-4.1-state", "6749-4.1.2-state-returned", "6749-4.1.2.1-state-returned", "6819-4.4.1.8-forged-requests"
)
@pytest.mark.clause("6749-10.14-state-and-redirect-uri", "6749-4.1.2-code-in-redirect", "spec-4.1-consent")
@pytest.mark.clause("9207-2-iss-in-redirect", "9207-2-iss-in-error-redirect", "spec-4.1-denial")
@pytest.mark.parametrize("state", STATES)
async def test_any_state_is_returned_unchanged(browser: Browser, state: str) -> None:
    page = await browser.open_consent_page(authorization_url(state=state))
    allowed = await browser.allow(page)
    denied = await browser.deny(await browser.open(authorization_url(state=state)))
    mistaken = await browser.open(authorization_url(state=state, scope="x"))

    assert authorization_response(allowed).keys() == {"code", "state", "iss"}
    assert assert_sent_back(denied, "access_denied").keys() == {"error", "error_description", "state", "iss"}
    for response in (allowed, denied, mistaken):
        answer = authorization_response(response)
        assert (answer["state"], answer["iss"]) == (state, ISSUER)
        assert re.fullmatch(r"[!-~]+", response.headers["location"])
        assert urlsplit(response.headers["location"]).fragment == ""
    assert not [header for header in allowed.headers.get_list("set-cookie") if "evil" in header]


@pytest.mark.clause("6749-10.14-state-and-redirect-uri")
@pytest.mark.parametrize("name", ["state", "redirect_uri", "scope", "client_id", "response_type", "code_challenge"])
@pytest.mark.parametrize("line_end", ["\r\n", "\u2028", "嘊"])
async def test_no_parameter_can_add_a_header(browser: Browser, name: str, line_end: str) -> None:
    values = {"state": "x", "redirect_uri": PHONE_CALLBACK, "scope": "role:enduser", "client_id": "phone-app"}
    evil = f"{values.get(name, '')}{line_end}X-Evil: 1{line_end}{line_end}<script>"
    query = {"response_type": "code"} | values | {name: evil}
    response = await browser.open(AUTHORIZATION + "?" + "&".join(f"{key}={quote(query[key])}" for key in query))

    assert "x-evil" not in response.headers
    assert "<script>" not in response.text
    if "location" in response.headers:
        assert response.headers["location"].startswith(f"{PHONE_CALLBACK}?")


@pytest.mark.clause("6749-10.14-state-and-redirect-uri")
async def test_hostile_names_stand_on_the_pages_as_text(browser: Browser, worker: Worker) -> None:
    client = await register(worker, "hostile", client_name=f"Shop {HOSTILE}")
    await change_user(worker, ALICE, name=f"Alice {HOSTILE}")
    login = await browser.open(authorization_url(client, state=HOSTILE))
    wrong = await browser.log_in(login, UserCredentials(f"alice{HOSTILE}", "wrong"))
    consent = await browser.log_in(login)
    code = authorization_response(await browser.allow(consent))["code"]
    await client.exchange(browser.http, code, PHONE_CALLBACK)
    sessions = await browser.open(SESSIONS)
    assert is_consent_page(consent)

    for response in (login, wrong, consent, sessions):
        assert "<script>" not in response.text
        assert "<img" not in response.text
        assert "onerror=alert" not in re.sub(r"&lt;.*?&gt;", "", response.text)
        assert f"Shop {HOSTILE}" in Page(response).text
    assert Page(wrong).find_form(LOGIN).fields["username"] == f"alice{HOSTILE}"
    assert f"Alice {HOSTILE}" in Page(consent).text


# Forged forms


@pytest.mark.clause("6749-10.12-csrf")
async def test_login_form_without_its_mac_is_ignored(
    browser: Browser, http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    form = Page(await browser.open(authorization_url())).find_form(LOGIN)
    foreign = Page(await Browser(http).open(authorization_url())).find_form(LOGIN).fields["request"]
    filled = form.fields | {"username": ALICE.username, "password": ALICE.password}
    sealed = filled["request"]
    altered = [
        sealed[:place] + ("B" if sealed[place] == "A" else "A") + sealed[place + 1 :] for place in (0, 10, 60, -9)
    ]

    assert_refused(await browser.send(LOGIN, filled | {"request": foreign}), 403, "forged")
    for request in ("", "x", "A" * 61, sealed[:-1], sealed[1:], sealed + "A", sealed + "=", "é", "\x00", *altered):
        assert_refused(await browser.send(LOGIN, filled | {"request": request}), 400, "expired")
    assert not [*store.scan_iter("browser:*"), *store.scan_iter("login:*")]
    assert is_consent_page(await browser.send(LOGIN, filled))


@pytest.mark.clause("6749-10.12-csrf", "decided-nothing-kept-for-strangers")
async def test_login_form_is_valid_for_half_an_hour(browser: Browser, clock: Clock) -> None:
    page = await browser.open(authorization_url())
    clock.advance(30 * 60 - 5)
    assert is_login_page(await browser.log_in(page, WRONG_ALICE))
    clock.advance(10)

    assert_refused(await browser.log_in(page), 400, "expired")


async def test_provider_login_seal_is_not_a_login_form(browser: Browser, worker: Worker) -> None:
    await browser.open(authorization_url())
    await worker.clients.find(PHONE_APP.client_id)
    digest = digest_token(browser.cookie_values[BROWSER_COOKIE])
    login = PendingLogin(browser_digest=digest, request=None, realm="cep", provider="x")
    state = worker.pending_logins.seal(PROVIDER, login)

    assert_refused(await browser.send(LOGIN, {"request": state}), 400, "expired")


@pytest.mark.clause("6749-10.12-csrf", "6749-10.2-no-automatic-repeat", "6819-4.4.1.10-program-as-user")
@pytest.mark.parametrize("action", [CONSENT, SWITCH])
async def test_consent_form_without_its_mac_does_nothing(
    browser: Browser, http: httpx2.AsyncClient, store: redis.Redis, action: str
) -> None:
    login = Page(await browser.open(authorization_url())).find_form(LOGIN).fields["request"]
    form = Page(await browser.open_consent_page(authorization_url())).find_form(CONSENT)
    another = Page(await browser.open_consent_page(authorization_url())).find_form(CONSENT).fields["csrf"]
    foreign = Page(await Browser(http).open_consent_page(authorization_url())).find_form(CONSENT).fields["csrf"]
    sessions = Page(await browser.open(SESSIONS)).find_form("/sessions/end-all").fields["csrf"]
    filled = form.fields | {"decision": "allow"}

    for csrf in ("", "x", login, another, foreign, sessions, filled["csrf"][:-1], filled["csrf"] + "A"):
        assert_refused(await browser.send(action, filled | {"csrf": csrf}), 403, "forged")
    assert not [*store.scan_iter("code:*")]
    assert "code" in authorization_response(await browser.send(CONSENT, filled))


@pytest.mark.clause("6749-10.12-csrf")
async def test_cross_site_form_logs_in_no_attacker(browser: Browser, http: httpx2.AsyncClient) -> None:
    """Login CSRF: the victim would work in the attacker's account, or link it to their own."""
    attacker = Browser(http)
    form = Page(await attacker.open(authorization_url())).find_form(LOGIN)
    filled = form.fields | {"username": BOB.username, "password": BOB.password}
    assert_refused(await browser.send(LOGIN, filled, Origin="https://evil.example"), 403, "forged")
    await browser.open(authorization_url())
    assert_refused(await browser.send(LOGIN, filled, Origin="https://evil.example"), 403, "forged")

    assert SESSION_COOKIE not in browser.cookie_values
    assert is_login_page(await browser.open(authorization_url()))


@pytest.mark.clause("6749-10.12-csrf")
async def test_foreign_consent_cannot_be_allowed(browser: Browser, http: httpx2.AsyncClient) -> None:
    """The attacker's consent page, sent by the victim's browser, links no account."""
    attacker = Browser(http)
    fields = Page(await attacker.open_consent_page(authorization_url(), BOB)).find_form(CONSENT).fields
    await browser.sign_in()

    assert_refused(await browser.send(CONSENT, fields | {"decision": "allow"}), 400, "expired")
    assert_refused(await browser.open(f"{CONSENT}?request={fields['request']}"), 400, "expired")
    assert_refused(await Browser(http).send(CONSENT, fields | {"decision": "allow"}), 403, "signed_out")


# Stolen and planted cookies


async def test_the_cookie_of_a_browser_alone_opens_nothing(browser: Browser, http: httpx2.AsyncClient) -> None:
    await browser.open_consent_page(authorization_url())
    thief = Browser(http)
    for name in (BROWSER_COOKIE, DEVICE_COOKIE):
        thief.set_cookie(name, browser.cookie_values[name])

    assert is_login_page(await thief.open(authorization_url()))
    assert is_login_page(await thief.open(SESSIONS))
    assert_refused(await thief.send(LOGIN, {"request": "x"}), 400, "expired")


async def test_login_replaces_a_planted_session(browser: Browser, http: httpx2.AsyncClient) -> None:
    """Session fixation: neither the attacker's own session nor an invented one becomes the victim's."""
    attacker = Browser(http)
    await attacker.sign_in(BOB)
    for planted in (attacker.cookie_values[SESSION_COOKIE], "tsbs1_000" + "A" * 44):
        victim = Browser(http)
        login = await victim.open(authorization_url())
        victim.set_cookie(SESSION_COOKIE, planted)
        consent = await victim.log_in(login)

        assert ALICE.username in Page(consent).text
        assert victim.cookie_values[SESSION_COOKIE] != planted
        knows = Browser(http)
        knows.set_cookie(SESSION_COOKIE, planted)
        assert is_login_page(await knows.open(authorization_url()))


# Leaks


async def test_the_host_header_decides_nothing(make_settings: MakeSettings, clock: Clock, registry: None) -> None:
    evil = {"Host": "evil.example", "X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https"}
    async with serving(make_settings(), clock) as http:
        http.headers.update(evil)
        browser = Browser(http)
        login = await browser.open(authorization_url(state="x"))
        consent = await browser.log_in(login)
        allowed = await browser.allow(consent)
        refused = await browser.open(authorization_url(scope="x"))
        pages = [login, consent, await browser.open(SESSIONS), await browser.open("/"), await browser.open(CONSENT)]

    assert (authorization_response(allowed)["iss"], authorization_response(refused)["iss"]) == (ISSUER, ISSUER)
    for response in (*pages, allowed, refused):
        assert "evil.example" not in response.text + str(response.headers)


async def test_no_log_line_holds_a_secret_of_the_pages(
    browser: Browser, http: httpx2.AsyncClient, store: redis.Redis, json_logs: io.StringIO
) -> None:
    login = await browser.open(authorization_url(state="a-state-of-the-client"))
    await browser.log_in(login, replace(ALICE, password="a-wrong-password"))
    consent = await browser.log_in(login)
    code = authorization_response(await browser.allow(consent))["code"]
    tokens = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))
    assert_refused(await browser.allow(consent), 400, "answered")
    store.config_set("maxmemory", 1)
    assert_sent_back(await browser.open(authorization_url()), "temporarily_unavailable")
    store.config_set("maxmemory", 0)
    # The HTTP client of this test also logs.
    lines = [line for line in json_logs.getvalue().splitlines() if '"logger":"httpx2"' not in line]
    secrets = [
        *browser.cookie_values.values(),
        *(value for page in (login, consent) for form in Page(page).forms for value in form.fields.values() if value),
        *(ALICE.password, "a-wrong-password", "a-state-of-the-client"),
        *(code, tokens["access_token"], tokens["refresh_token"]),
    ]

    assert len(lines) >= 7
    assert not [secret for secret in secrets for line in lines if secret in line]
    assert not [line for line in lines if ALICE.username in line and '"logger":"service.audit"' not in line]


# Floods


async def test_login_creates_bounded_pending_consents(browser: Browser, store: redis.Redis, clock: Clock) -> None:
    """Each open authorization request is kept for half an hour, with a state of up to 8 KiB."""
    await browser.sign_in()
    for _ in range(320):
        response = await browser.open(authorization_url(state="x"))

    assert_sent_back(response, "temporarily_unavailable")
    assert len([*store.scan_iter("consent:*", count=1000)]) <= 300
    clock.advance(60)
    assert is_consent_page(await browser.open(authorization_url()))


MAX_ADDRESS_KEYS = 10
"""The counters of one address and its networks, the registry's own keys and the event stream.

320 pages would be more.
"""


@pytest.mark.clause("decided-nothing-kept-for-strangers", "6819-4.4.1.11-pool-exhausted")
async def test_one_address_cannot_fill_redis_with_login_pages(browser: Browser, store: redis.Redis) -> None:
    """A login page leaves only the counters of its address, and most of these expire soon."""
    before = {*store.scan_iter(count=1000)}
    for _ in range(320):
        response = await browser.open(SESSIONS)

    assert_refused(response, 503, "busy")
    assert 1 <= int(response.headers["retry-after"]) <= 60
    assert page_text("refused.retry") in Page(response).text
    added = {str(key) for key in store.scan_iter(count=1000)} - before
    assert {key.partition(":")[0] for key in added} <= {"address", "lease", "events"}
    assert len(added) <= MAX_ADDRESS_KEYS
