"""The browsers on /sessions/: users see where they are signed in, and sign out of each."""

import httpx2
import pytest

from service.crypto.keyring import make_browser_session
from service.protocol.user import identify_user
from service.worker import Worker
from tests.conftest import Clock
from tests.support.browser import (
    SESSION_COOKIE,
    SESSIONS,
    Browser,
    HtmlForm,
    Page,
    authorization_url,
    is_consent_page,
    is_login_page,
    page_text,
    register_neighbour,
)
from tests.support.clients_and_users import ALICE, BOB, PHONE_APP, tokens_of
from tests.support.codes import SESSION_MS
from tests.support.logins import login_of

pytestmark = pytest.mark.clause("decided-browser-logins-listed")

END_BROWSER = "/sessions/end-browser"
CLICKS = 20
IDENTITY = identify_user(ALICE.realm, ALICE.username)


def browser_forms_of(page: httpx2.Response) -> list[HtmlForm]:
    """Return a form for each other browser on the page."""
    assert not is_login_page(page), Page(page).text
    return [form for form in Page(page).forms if form.action == END_BROWSER]


def count_browsers(page: httpx2.Response) -> tuple[int, int]:
    """Return how often the page names this browser, and another one."""
    text = Page(page).text
    return text.count(page_text("sessions.this_browser")), text.count(page_text("sessions.other_browser"))


async def test_the_page_shows_each_browser_and_marks_this_one(browser: Browser, http: httpx2.AsyncClient) -> None:
    assert count_browsers(await browser.sign_in()) == (1, 0)
    await Browser(http).sign_in()
    await Browser(http).sign_in(stay="yes")
    await Browser(http).sign_in(BOB)
    page = await browser.open(SESSIONS)

    assert count_browsers(page) == (1, 2)
    assert len(browser_forms_of(page)) == 2
    text = Page(page).text
    assert page_text("sessions.signed_in_until") in text
    assert text.index(page_text("sessions.this_browser")) < text.index(page_text("sessions.other_browser"))


async def test_a_browser_is_signed_out_and_nothing_else(browser: Browser, http: httpx2.AsyncClient) -> None:
    other, third = Browser(http), Browser(http)
    await browser.sign_in()
    await other.sign_in()
    [form] = browser_forms_of(await browser.open(SESSIONS))
    await third.sign_in()
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    page = await browser.send(form.action, form.fields)

    assert (count_browsers(page), page.url.path) == ((1, 1), SESSIONS)
    assert is_login_page(await other.open(authorization_url()))
    assert is_consent_page(await third.open(authorization_url()))
    assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == 200


async def test_user_cannot_sign_out_another_user(browser: Browser, http: httpx2.AsyncClient, worker: Worker) -> None:
    """The name of the login alone is not enough, even with a valid form of the attacker."""
    neighbour, other = await register_neighbour(worker), Browser(http)
    await other.sign_in(neighbour)
    await Browser(http).sign_in(neighbour)
    [theirs] = browser_forms_of(await other.open(SESSIONS))
    await browser.sign_in()
    await Browser(http).sign_in()
    [ours] = browser_forms_of(await browser.open(SESSIONS))

    for name in (theirs.fields["browser"], "", "x", "a}:b", "\n", "*"):
        assert count_browsers(await browser.send(END_BROWSER, ours.fields | {"browser": name})) == (1, 1)
    assert count_browsers(await other.open(SESSIONS)) == (1, 1)


async def test_ending_this_browser_signs_it_out(browser: Browser, http: httpx2.AsyncClient) -> None:
    other = Browser(http)
    await browser.sign_in()
    await other.sign_in()
    [form] = browser_forms_of(await browser.open(SESSIONS))
    [this] = browser_forms_of(await other.open(SESSIONS))
    page = await browser.send(END_BROWSER, form.fields | {"browser": this.fields["browser"]})

    assert is_login_page(page)
    assert page_text("login.notice_signed_out_here") in Page(page).text
    assert SESSION_COOKIE not in browser.cookie_values
    assert count_browsers(await other.open(SESSIONS)) == (1, 0)


async def test_ended_login_is_not_shown(browser: Browser, http: httpx2.AsyncClient, clock: Clock) -> None:
    await Browser(http).sign_in()
    clock.advance(3570)
    assert count_browsers(await browser.sign_in()) == (1, 1)
    clock.advance(31)

    assert count_browsers(await browser.open(SESSIONS)) == (1, 0)


async def test_page_shows_a_hundred_browsers_at_most(browser: Browser, worker: Worker) -> None:
    await browser.sign_in()
    alice = await worker.registry.users.find(IDENTITY)
    assert alice is not None
    for _ in range(100):
        session = make_browser_session(IDENTITY.shard)
        assert await worker.browser_sessions.start(session, login_of(alice), lifetime_ms=SESSION_MS)
    page = await browser.open(SESSIONS)

    assert sum(count_browsers(page)) == 100
    assert page_text("sessions.more_browsers") in Page(page).text
