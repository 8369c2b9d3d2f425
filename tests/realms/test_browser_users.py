"""The users of an external realm: roles, names, other logins, signing out."""

import httpx2
import pytest

from service.protocol.user import identify_user
from service.worker import Worker
from tests.conftest import Clock
from tests.realms.login_steps import (
    ASK_CEP,
    SUB,
    RegisterRealm,
    choose_cep,
    describe,
    location_of,
    log_in,
    log_in_at_provider,
    log_in_through_cep,
    query_of,
    start_login,
)
from tests.support.browser import (
    SESSION_COOKIE,
    SESSIONS,
    SWITCH,
    Browser,
    Page,
    assert_refused,
    assert_sent_back,
    authorization_url,
    change_user,
    is_consent_page,
    is_login_page,
    page_text,
)
from tests.support.clients_and_users import UserCredentials
from tests.support.fake_provider import CLAIMS, FakeProvider

NAME = str(CLAIMS["name"])
LABEL = "Example Energy Cooperative"
ZOE = UserCredentials(SUB, "", realm="cep")
BOTH_ROLES = authorization_url(scope="realm:cep role:enduser role:organisation")


@pytest.mark.clause("spec-2.2-realm-cep", "decided-external-roles")
async def test_an_unlisted_user_has_the_roles_of_the_realm(
    browser: Browser, http: httpx2.AsyncClient, register_realm: RegisterRealm
) -> None:
    await register_realm(default_roles=["organisation", "enduser"])

    assert (await log_in(http, browser, BOTH_ROLES))["scope"] == "realm:cep role:enduser role:organisation"


@pytest.mark.clause("decided-external-roles")
async def test_a_listed_user_has_the_listed_roles_alone(
    browser: Browser, http: httpx2.AsyncClient, register_realm: RegisterRealm
) -> None:
    await register_realm({"username": SUB, "realm": "cep", "roles": ["organisation"]})

    assert (await log_in(http, browser, BOTH_ROLES))["scope"] == "realm:cep role:organisation"


@pytest.mark.clause("decided-external-roles", "decided-external-afresh")
@pytest.mark.parametrize(
    ("users", "default_roles"),
    [
        pytest.param([{"username": SUB, "realm": "cep", "roles": []}], ["enduser"], id="listed with none"),
        pytest.param([], [], id="not listed, and the realm gives none"),
    ],
)
async def test_user_without_roles_is_denied(
    browser: Browser, register_realm: RegisterRealm, users: list[dict[str, object]], default_roles: list[str]
) -> None:
    await register_realm(*users, default_roles=default_roles)
    answer = assert_sent_back(await log_in_through_cep(browser, f"{ASK_CEP}&state=a%20state"), "access_denied")

    page = await browser.open(ASK_CEP)

    assert answer["state"] == "a state"
    assert "This account cannot be used for Phone App ." in Page(page).text
    # Otherwise single sign-on would return the same user.
    assert query_of(await choose_cep(browser, page))["prompt"] == "login"


@pytest.mark.clause("decided-disabled-user")
async def test_login_of_a_disabled_user_is_void(browser: Browser, cep: None, worker: Worker) -> None:
    page = await log_in_through_cep(browser)
    await change_user(worker, ZOE, disabled=True)

    assert_refused(await browser.allow(page), 403, "signed_out")
    assert (
        query_of(await start_login(browser))["prompt"] == "login"
    )  # otherwise single sign-on would return the same user


@pytest.mark.clause("6749-10.2-owner-told")
async def test_consent_page_names_user_and_realm(browser: Browser, cep: None) -> None:
    page = Page(await log_in_through_cep(browser))

    assert NAME in page.text
    assert SUB in page.text
    assert LABEL in page.text


@pytest.mark.clause("decided-external-afresh")
async def test_not_you_makes_the_provider_ask_for_a_login(
    browser: Browser, http: httpx2.AsyncClient, cep: None, provider: FakeProvider
) -> None:
    place = await start_login(browser)
    page = await browser.open(await log_in_at_provider(place))
    session = browser.cookie_values[SESSION_COOKIE]
    again = location_of(await browser.submit(page, SWITCH, {}))

    assert "prompt" not in query_of(place)
    assert query_of(again)["prompt"] == "login"
    assert SESSION_COOKIE not in browser.cookie_values
    browser.set_cookie(SESSION_COOKIE, session)
    assert_refused(await browser.allow(page), 403, "signed_out")

    provider.claims["sub"] = "somebody else"
    page = await browser.open(await log_in_at_provider(again))
    assert (await describe(http, page, browser))["username"] == "somebody else"


@pytest.mark.clause("decided-external-afresh", "decided-log-in-again")
@pytest.mark.parametrize("demand", ["prompt=login", "max_age=600"])
async def test_provider_is_asked_for_the_demanded_login(browser: Browser, cep: None, clock: Clock, demand: str) -> None:
    """The login at the provider may be older than the limit, even if the browser has no login here."""
    place = await start_login(browser, f"{ASK_CEP}&{demand}")
    assert is_consent_page(await browser.open(await log_in_at_provider(place)))
    clock.advance(610)
    again = await start_login(browser, f"{ASK_CEP}&{demand}")
    either = await browser.open(f"{authorization_url(scope='role:enduser')}&{demand}")

    assert [query_of(it)["prompt"] for it in (place, again, await choose_cep(browser, either))] == ["login"] * 3
    assert is_consent_page(await browser.open(await log_in_at_provider(again)))


@pytest.mark.clause("decided-log-in-again")
async def test_demand_outlives_a_failed_provider_login(browser: Browser, cep: None, worker: Worker) -> None:
    """Zoe's sessions end during her login. Alice, whose login the browser still has, is not let in instead."""
    await browser.sign_in()
    page = await browser.open(authorization_url(scope="role:enduser", prompt="login"))
    path = await log_in_at_provider(await choose_cep(browser, page))
    zoe = identify_user("cep", SUB)
    await worker.revocations.revoke_all(zoe.shard, zoe.digest)

    assert is_login_page(await browser.open(path))
    assert is_consent_page(await browser.open(authorization_url(scope="role:enduser")))


@pytest.mark.clause("decided-realm-choice")
async def test_a_login_of_one_realm_does_not_serve_the_other(
    browser: Browser, http: httpx2.AsyncClient, cep: None
) -> None:
    await log_in_through_cep(browser)
    assert is_login_page(await browser.open(authorization_url(scope="realm:main role:enduser")))

    other = Browser(http)
    await other.open_consent_page(authorization_url(scope="realm:main role:enduser"))
    page = await other.open(authorization_url(scope="realm:cep role:enduser"))
    assert "This account cannot be used for Phone App ." in Page(page).text
    assert (await choose_cep(other, page)).startswith("http")


@pytest.mark.parametrize(
    ("error", "notice"), [("access_denied", "notice_login_denied"), ("server_error", "notice_login_failed")]
)
async def test_failed_provider_login_is_shown_on_the_page(
    browser: Browser, cep: None, provider: FakeProvider, error: str, notice: str
) -> None:
    provider.redirect = {"code": None, "error": error}
    page = await browser.open(await log_in_at_provider(await choose_cep(browser, await browser.open(SESSIONS))))

    assert (page.status_code, page.url.path) == (200, SESSIONS)
    assert page_text(f"login.{notice}") in Page(page).text
    assert is_login_page(page)
    assert SESSION_COOKIE not in browser.cookie_values

    provider.redirect = {}
    page = await browser.open(await log_in_at_provider(await choose_cep(browser, page)))
    assert page_text("sessions.sign_out_heading") in Page(page).text


@pytest.mark.clause("decided-external-afresh")
@pytest.mark.parametrize("leave", ["/sessions/sign-out", "/sessions/end-all"])
async def test_signed_out_browser_is_not_signed_in_again(browser: Browser, cep: None, leave: str) -> None:
    page = await browser.open(await log_in_at_provider(await choose_cep(browser, await browser.open(SESSIONS))))
    page = await browser.submit(page, leave, {})

    assert is_login_page(page)
    assert query_of(await choose_cep(browser, page))["prompt"] == "login"
    assert "prompt" not in query_of(await choose_cep(browser, await browser.open(SESSIONS)))


async def test_unadmitted_external_user_sees_the_reason(browser: Browser, cep: None, worker: Worker) -> None:
    await change_user(worker, ZOE, disabled=True)
    page = await browser.open(await log_in_at_provider(await choose_cep(browser, await browser.open(SESSIONS))))

    assert page_text("login.notice_login_not_admitted") in Page(page).text
    assert query_of(await choose_cep(browser, page))["prompt"] == "login"


async def test_unavailable_provider_is_reported_on_the_form(
    browser: Browser, cep: None, provider: FakeProvider
) -> None:
    page = await browser.open(SESSIONS)
    async with provider.stopped():
        page = await browser.submit(page, "/authorization/login", {"realm": "cep"})

    assert page.status_code == 503
    assert int(page.headers["retry-after"]) >= 1
    assert "You cannot sign in with Example Energy Cooperative right now." in Page(page).text
    assert (await choose_cep(browser, page)).startswith(provider.url)


@pytest.mark.clause("decided-password-change")
async def test_external_user_sees_browsers_and_no_password_form(
    http: httpx2.AsyncClient, browser: Browser, cep: None
) -> None:
    other = Browser(http)
    for each in (browser, other):
        await log_in_through_cep(each)
    page = await browser.open(SESSIONS)
    csrf = Page(page).find_form("/sessions/end-browser").fields["csrf"]
    fields = {"csrf": csrf, "current": "a password", "new": "another password", "repeated": "another password"}

    assert page_text("password.heading") not in Page(page).text
    assert_refused(await browser.send("/sessions/password", fields), 403, "forged")
    await browser.submit(page, "/sessions/end-browser", {})
    assert page_text("sessions.heading") not in Page(await other.open(SESSIONS)).text
    assert page_text("sessions.heading") in Page(await browser.open(SESSIONS)).text
