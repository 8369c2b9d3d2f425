"""The browsers on /sessions/: users see where they are signed in, and sign out of each."""

import httpx2
import pytest

from service.crypto.keyring import make_browser_session
from service.protocol.user import identify_user
from service.web.request.browser_name import name_browser
from service.worker import Worker
from tests.conftest import Clock
from tests.support.browser import (
    LOGIN,
    SESSION_COOKIE,
    SESSIONS,
    Browser,
    HtmlForm,
    Page,
    authorization_response,
    authorization_url,
    is_consent_page,
    is_login_page,
    page_text,
    register_neighbour,
)
from tests.support.clients_and_users import ALICE, BOB, PHONE_APP, PHONE_CALLBACK, tokens_of
from tests.support.codes import SESSION_MS
from tests.support.logins import login_of

pytestmark = pytest.mark.clause("decided-browser-logins-listed")

END_BROWSER = "/sessions/end-browser"
CLICKS = 20
HOUR_SECONDS = 3_600
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


FIREFOX = "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0"


@pytest.mark.clause("decided-browsers-named")
async def test_browsers_and_their_sessions_have_a_name(browser: Browser, http: httpx2.AsyncClient) -> None:
    page = await browser.open(authorization_url())
    form = Page(page).find_form(LOGIN)
    filled = form.fields | {"username": ALICE.username, "password": ALICE.password}
    page = await browser.send(LOGIN, filled, **{"User-Agent": FIREFOX})
    tokens = tokens_of(
        await PHONE_APP.exchange(http, authorization_response(await browser.allow(page))["code"], PHONE_CALLBACK)
    )
    await PHONE_APP.refresh(http, tokens["refresh_token"])
    await PHONE_APP.log_in(http, ALICE)
    text = Page(await browser.open(SESSIONS)).text

    assert "This browser: Firefox on Windows" in text
    assert text.count("Allowed in Firefox on Windows") == 1  # the other session is one by password


@pytest.mark.clause("decided-browsers-named")
async def test_page_tells_when_a_browser_last_asked_for_consent(
    browser: Browser, http: httpx2.AsyncClient, clock: Clock
) -> None:
    other = Browser(http)
    await browser.sign_in(stay="yes")
    await other.sign_in(stay="yes")
    clock.advance(50 * HOUR_SECONDS)
    await other.open(authorization_url())
    clock.advance(2 * HOUR_SECONDS)
    text = Page(await browser.open(SESSIONS)).text

    assert text.count("Last used 2 hours ago") == text.count("Last used 2 days ago") == 1


CHROME = "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0"


@pytest.mark.clause("decided-browsers-named")
@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        (FIREFOX, "Firefox/Windows"),
        (f"Mozilla/5.0 (X11; Linux x86_64) {CHROME} Safari/537.36", "Chrome/Linux"),
        (f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {CHROME} Safari/537.36 Edg/140.0.0.0", "Edge/Windows"),
        (f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {CHROME} Safari/537.36 OPR/120.0.0.0", "Opera/Windows"),
        (f"Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) {CHROME} Safari/537.36", "Chrome/ChromeOS"),
        (f"Mozilla/5.0 (Linux; Android 10; K) SamsungBrowser/28.0 {CHROME} Mobile Safari/537.36", "Samsung/Android"),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
            "Version/18.5 Mobile/15E148 Safari/604.1",
            "Safari/iOS",
        ),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) "
            "Version/18.5 Safari/605.1.15",
            "Safari/macOS",
        ),
        ("curl/8.5.0", ""),
        ("Firefox/140.0", ""),
        ("x\n" * 5000 + FIREFOX, ""),
        ("", ""),
    ],
)
def test_a_browser_is_named_from_fixed_lists_only(user_agent: str, name: str) -> None:
    assert name_browser(user_agent) == name
    assert len(name) <= 24


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
