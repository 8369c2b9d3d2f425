"""/sessions/ over HTTP: users see the applications that can act for them, and end sessions there."""

from urllib.parse import urlencode

import httpx2
import pytest
import redis

from service.worker import Worker
from tests.conftest import Clock
from tests.support.browser import (
    SESSION_COOKIE,
    SESSIONS,
    Browser,
    HtmlForm,
    Page,
    assert_refused,
    authorization_url,
    is_consent_page,
    is_login_page,
    page_text,
    register_neighbour,
)
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    PHONE_APP,
    PHONE_CALLBACK,
    WEB_SHOP,
    assert_error,
    is_live,
    tokens_of,
)

END = "/sessions/end"
END_ALL = "/sessions/end-all"
SIGN_OUT = "/sessions/sign-out"


def session_forms_of(page: httpx2.Response) -> list[HtmlForm]:
    """Return a form for each session on the page."""
    assert not is_login_page(page), Page(page).text
    return [form for form in Page(page).forms if form.action.endswith(END)]


async def test_sessions_page_asks_for_login_first(browser: Browser) -> None:
    page = await browser.open(SESSIONS)
    assert is_login_page(page)
    assert page_text("login.continue_to_sessions") in Page(page).text
    page = await browser.log_in(page)

    assert page.url.path == SESSIONS
    assert ALICE.username in Page(page).text
    assert page_text("sessions.none_heading") in Page(page).text


async def test_sessions_page_lists_all_grants(browser: Browser, http: httpx2.AsyncClient) -> None:
    await WEB_SHOP.log_in(http, ALICE)
    await WEB_SHOP.log_in(http, BOB)
    code = await browser.get_code(scope="role:enduser role:organisation")
    page = await browser.open(SESSIONS)
    assert len(session_forms_of(page)) == 1
    await PHONE_APP.exchange(http, code, PHONE_CALLBACK)
    page = await browser.open(SESSIONS)

    assert len(session_forms_of(page)) == 2
    for text in ("Phone App", "Web Shop", page_text("role_name.enduser"), page_text("role_name.organisation")):
        assert text in Page(page).text


async def test_ended_session_is_not_shown(browser: Browser, http: httpx2.AsyncClient, clock: Clock) -> None:
    await browser.sign_in(stay="yes")
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    await WEB_SHOP.log_in(http, ALICE)
    await PHONE_APP.revoke(http, tokens["refresh_token"])
    assert len(session_forms_of(await browser.open(SESSIONS))) == 1
    clock.advance(30 * 24 * 3600 - 30)
    later = Browser(http)
    assert len(session_forms_of(await later.sign_in())) == 1
    clock.advance(31)

    assert session_forms_of(await later.open(SESSIONS)) == []


async def test_page_shows_a_hundred_sessions_at_most(browser: Browser, http: httpx2.AsyncClient) -> None:
    await browser.sign_in()
    for _ in range(101):
        assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
    page = await browser.open(SESSIONS)

    assert len(session_forms_of(page)) == 100
    assert page_text("sessions.more") in Page(page).text


@pytest.mark.clause("spec-3-revoke-all")
async def test_one_session_ends_with_its_tokens_and_the_others_live(
    browser: Browser, http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    await browser.sign_in()
    ended = tokens_of(await PHONE_APP.log_in(http, ALICE))
    [form] = session_forms_of(await browser.open(SESSIONS))
    kept = tokens_of(await WEB_SHOP.log_in(http, ALICE))
    page = await browser.send(form.action, form.fields)

    assert (len(session_forms_of(page)), page.url.path) == (1, SESSIONS)
    assert not is_live(store, ended["access_token"])
    assert_error(await PHONE_APP.refresh(http, ended["refresh_token"]), 400, "invalid_grant")
    assert is_live(store, kept["access_token"])
    assert (await WEB_SHOP.refresh(http, kept["refresh_token"])).status_code == 200


async def test_user_cannot_end_the_session_of_another_user(
    browser: Browser, http: httpx2.AsyncClient, worker: Worker
) -> None:
    """The session's name alone is not enough, even with a valid form of the attacker."""
    neighbour, other = await register_neighbour(worker), Browser(http)
    await other.sign_in(neighbour)
    tokens = tokens_of(await PHONE_APP.log_in(http, neighbour))
    [theirs] = session_forms_of(await other.open(SESSIONS))
    await browser.sign_in()
    await PHONE_APP.log_in(http, ALICE)
    [ours] = session_forms_of(await browser.open(SESSIONS))

    for name in (theirs.fields["session"], "", "x", "a}:b", "\n", "*"):
        assert len(session_forms_of(await browser.send(END, ours.fields | {"session": name}))) == 1
    assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == 200


@pytest.mark.clause("decided-revoke-all-covers-logins", "decided-revoke-all-covers")
async def test_signing_out_everywhere_ends_all_sessions(
    browser: Browser, http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    other, bobs = Browser(http), Browser(http)
    await other.sign_in(stay="yes")
    await bobs.sign_in(BOB)
    sessions = [(client, tokens_of(await client.log_in(http, ALICE))) for client in (PHONE_APP, WEB_SHOP)]
    bobs_tokens = tokens_of(await PHONE_APP.log_in(http, BOB))
    page = await browser.submit(await browser.sign_in(), END_ALL, {})

    assert is_login_page(page)
    assert SESSION_COOKIE not in browser.cookie_values
    assert is_login_page(await other.open(authorization_url()))
    for client, tokens in sessions:
        assert not is_live(store, tokens["access_token"])
        assert_error(await client.refresh(http, tokens["refresh_token"]), 400, "invalid_grant")
    assert is_consent_page(await bobs.open(authorization_url()))
    assert (await PHONE_APP.refresh(http, bobs_tokens["refresh_token"])).status_code == 200


async def test_signing_out_ends_only_this_browser_session(browser: Browser, http: httpx2.AsyncClient) -> None:
    other = Browser(http)
    await other.sign_in()
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    page = await browser.sign_in()
    session = browser.cookie_values[SESSION_COOKIE]
    page = await browser.submit(page, SIGN_OUT, {})
    browser.set_cookie(SESSION_COOKIE, session)

    assert is_login_page(page)
    assert is_login_page(await browser.open(authorization_url()))
    assert is_consent_page(await other.open(authorization_url()))
    assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == 200


@pytest.mark.clause("6749-10.12-csrf", "decided-password-change", "decided-browser-logins-listed")
@pytest.mark.parametrize("action", [END, END_ALL, SIGN_OUT, "/sessions/end-browser", "/sessions/password"])
async def test_a_form_without_the_proof_of_this_browser_does_nothing(
    browser: Browser, http: httpx2.AsyncClient, action: str
) -> None:
    bobs = Browser(http)
    foreign = Page(await bobs.sign_in(BOB)).find_form(SIGN_OUT).fields["csrf"]
    await browser.sign_in()
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    [form] = session_forms_of(await browser.open(SESSIONS))
    consent = Page(await browser.open(authorization_url())).forms[0].fields["csrf"]

    for csrf in ("", "x", form.fields["csrf"][:-1], form.fields["csrf"] + "A", foreign, consent, "é"):
        assert_refused(await browser.send(action, form.fields | {"csrf": csrf}), 403, "forged")
    assert (await browser.open(action)).status_code == 405
    assert len(session_forms_of(await browser.open(SESSIONS))) == 1
    assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == 200


@pytest.mark.parametrize("action", [END, END_ALL, SIGN_OUT, "/sessions/password"])
async def test_a_form_of_a_login_that_is_over_leads_to_a_new_login(
    browser: Browser, http: httpx2.AsyncClient, clock: Clock, action: str
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    page = await browser.sign_in()
    form = Page(page).find_form(action)
    clock.advance(3600)

    assert is_login_page(await browser.send(action, form.fields))
    assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == 200


@pytest.mark.parametrize("action", [SIGN_OUT, END_ALL])
async def test_sign_out_without_session_records_no_event(
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


@pytest.mark.clause("6749-10.12-csrf")
@pytest.mark.parametrize("action", [SIGN_OUT, END_ALL])
async def test_foreign_form_without_cookie_deletes_no_cookie(browser: Browser, action: str) -> None:
    """A browser sends no Lax cookie with a foreign form, but would accept the cookies of the response."""
    await browser.sign_in()
    response = await Browser(browser.http).send(action, {"x": "1"})

    assert not any(cookie.startswith(SESSION_COOKIE) for cookie in response.headers.get_list("set-cookie"))
    assert all(SESSION_COOKIE not in str(past.headers) for past in response.history)
