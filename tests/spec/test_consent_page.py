"""GET and POST /authorization/consent over HTTP: the page names client and scope, and takes one answer."""

import asyncio

import httpx2
import pytest
import redis

from service.store.keys import registry_key
from service.web.pages.languages import load_languages
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving
from tests.support.browser import (
    CONSENT,
    SESSION_COOKIE,
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
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    PHONE_APP,
    PHONE_CALLBACK,
    SHOP_CALLBACK,
    WEB_SHOP,
    assert_error,
    tokens_of,
)

HALF_AN_HOUR = 1800


def name_of(page: httpx2.Response) -> str:
    return Page(page).find_form(CONSENT).fields["request"]


# Content of the page


@pytest.mark.clause(
    "6749-10.2-owner-told", "6819-5.1.3-owner-informed", "6819-5.2.4.2-informed-decision", "6819-4.2.2-too-much-granted"
)
@pytest.mark.clause("6819-5.2.4.3-client-shown")
async def test_consent_page_names_client_scope_lifetime_and_target(browser: Browser) -> None:
    page = Page(await browser.open_consent_page(authorization_url(scope="role:enduser role:organisation")))
    lifetime = load_languages()["en"].lifetime(2_592_000_000, None)

    for text in ("Phone App", "Alice", ALICE.username, "127.0.0.1:9000", lifetime):
        assert text in page.text
    for role in ("enduser", "organisation"):
        assert page_text(f"role.{role}") in page.text
        assert page_text(f"role.{role}_detail") in page.text
    assert page_text("role.device") not in page.text
    assert page.find_form(CONSENT).buttons == {"decision": ["deny", "allow"]}


@pytest.mark.clause("decided-client-lifetimes")
async def test_consent_page_tells_the_life_that_the_client_has(browser: Browser, worker: Worker) -> None:
    app = await register(worker, "some-client", refresh_token_ttl=86_400, session_max_age=604_800)

    page = Page(await browser.open_consent_page(authorization_url(app)))

    assert load_languages()["en"].lifetime(86_400_000, 604_800_000) in page.text


@pytest.mark.clause(
    "6749-3.1.2.1-insecure-redirect-warned", "6819-5.2.4.3-client-shown", "6819-4.4.1.5-counterfeit-client-site"
)
@pytest.mark.parametrize(
    ("redirect_uri", "destination", "is_warned"),
    [
        ("http://shop.example/callback", "shop.example", True),
        ("http://127.0.0.1.evil.example/callback", "127.0.0.1.evil.example", True),
        ("https://shop.example/callback", "shop.example", False),
        ("http://127.0.0.1:9000/callback", "127.0.0.1:9000", False),
        ("com.example.app:/callback", "com.example.app:", False),
    ],
)
async def test_consent_page_names_its_target_and_warns_of_http(
    browser: Browser, worker: Worker, redirect_uri: str, destination: str, is_warned: bool
) -> None:
    app = await register(worker, "some-client", redirect_uri)
    page = Page(await browser.open_consent_page(authorization_url(app, redirect_uri)))

    assert f"{page_text('consent.destination')} {destination}" in page.text
    assert (page_text("consent.insecure_heading") in page.text) == is_warned


# Allow and deny


@pytest.mark.parametrize("decision", ["", "Allow"])
async def test_answer_other_than_allow_or_deny_is_refused(browser: Browser, decision: str) -> None:
    page = await browser.open_consent_page(authorization_url())

    assert_refused(await browser.submit(page, CONSENT, {"decision": decision}), 400, "unverified")
    assert "code" in authorization_response(await browser.allow(page))


# A question for each request


@pytest.mark.clause(
    "decided-consent-every-time",
    "6749-10.2-no-automatic-repeat",
    "6819-5.2.4.1-no-automatic-repeat",
    "6819-4.2.3-earlier-consent",
)
@pytest.mark.clause("6819-5.2.3.2-consent-for-public-clients", "6749-3.1-owner-verified-first")
async def test_repeated_request_asks_only_for_consent(browser: Browser) -> None:
    first = await browser.open_consent_page(authorization_url(state="x"))
    codes = [authorization_response(await browser.allow(first))["code"]]
    for _ in range(3):
        page = await browser.open(authorization_url(state="x"))
        assert is_consent_page(page)
        codes.append(authorization_response(await browser.allow(page))["code"])

    assert len(set(codes)) == 4


# One answer


@pytest.mark.clause("decided-one-consent-one-code")
async def test_double_click_returns_the_same_code(browser: Browser, http: httpx2.AsyncClient) -> None:
    page = await browser.open_consent_page(authorization_url(state="x"))
    responses = await asyncio.gather(*(browser.allow(page) for _ in range(8)))
    locations = {response.headers["location"] for response in responses}

    assert len(locations) == 1
    code = authorization_response(responses[0])["code"]
    assert (await PHONE_APP.exchange(http, code, PHONE_CALLBACK)).status_code == 200
    assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")


@pytest.mark.clause("decided-one-consent-one-code")
async def test_a_code_that_was_exchanged_is_not_given_out_again(browser: Browser, http: httpx2.AsyncClient) -> None:
    page = await browser.open_consent_page(authorization_url())
    code = authorization_response(await browser.allow(page))["code"]
    tokens = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))

    assert_refused(await browser.allow(page), 400, "answered")
    assert_refused(await browser.deny(page), 400, "answered")
    assert_refused(await browser.submit(page, SWITCH, {}), 400, "answered")
    assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == 200


async def test_allow_after_deny_is_rejected(browser: Browser) -> None:
    page = await browser.open_consent_page(authorization_url())
    denied = await browser.deny(page)

    assert_refused(await browser.allow(page), 400, "answered")
    assert (await browser.deny(page)).headers["location"] == denied.headers["location"]


async def test_the_page_can_be_loaded_again_until_it_is_answered(browser: Browser) -> None:
    page = await browser.open_consent_page(authorization_url())
    again = await browser.open(f"{CONSENT}?request={name_of(page)}")
    assert name_of(again) == name_of(page)
    await browser.allow(again)

    assert_refused(await browser.open(f"{CONSENT}?request={name_of(page)}"), 400, "answered")


async def test_two_login_forms_in_one_browser_both_lead_on(browser: Browser) -> None:
    phone = await browser.open(authorization_url(state="phone"))
    shop = await browser.open(authorization_url(WEB_SHOP, SHOP_CALLBACK, state="shop"))

    assert authorization_response(await browser.allow(await browser.log_in(phone)))["state"] == "phone"
    assert authorization_response(await browser.allow(await browser.log_in(shop)), SHOP_CALLBACK)["state"] == "shop"


# Expiry


async def test_the_page_is_too_old_after_half_an_hour(browser: Browser, clock: Clock) -> None:
    pages = [await browser.open_consent_page(authorization_url()) for _ in range(3)]
    clock.advance(HALF_AN_HOUR - 30)
    assert "code" in authorization_response(await browser.allow(pages[0]))
    clock.advance(31)

    assert_refused(await browser.allow(pages[1]), 400, "expired")
    assert_refused(await browser.deny(pages[2]), 400, "expired")
    assert_refused(await browser.open(f"{CONSENT}?request={name_of(pages[1])}"), 400, "expired")


async def test_the_page_ends_with_the_login_that_it_was_made_for(browser: Browser, clock: Clock) -> None:
    await browser.sign_in()
    clock.advance(3500)
    page = await browser.open(authorization_url())
    assert is_consent_page(page)
    clock.advance(101)

    assert_refused(await browser.allow(page), 403, "signed_out")


# The grant equals what the page showed


@pytest.mark.clause("6749-10.2-owner-told", "6819-5.2.4.2-informed-decision")
async def test_role_added_during_login_is_not_granted(
    browser: Browser, http: httpx2.AsyncClient, worker: Worker
) -> None:
    page = await browser.open_consent_page(authorization_url(scope="role:enduser role:organisation"), BOB)
    await change_user(worker, BOB, roles=("enduser", "organisation"))
    code = authorization_response(await browser.allow(page))["code"]

    assert page_text("role.organisation") not in Page(page).text
    assert tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))["scope"] == "realm:main role:enduser"


async def test_role_lost_before_consent_gives_no_code(browser: Browser, worker: Worker) -> None:
    page = await browser.open_consent_page(authorization_url(scope="role:enduser role:organisation"))
    await change_user(worker, ALICE, roles=("enduser",))

    assert_refused(await browser.allow(page), 400, "expired")
    page = await browser.open(authorization_url(scope="role:enduser role:organisation"))
    assert page_text("role.organisation") not in Page(page).text
    assert "code" in authorization_response(await browser.allow(page))


async def test_disabled_user_cannot_allow(browser: Browser, worker: Worker) -> None:
    page = await browser.open_consent_page(authorization_url())
    await change_user(worker, ALICE, disabled=True)

    assert_refused(await browser.allow(page), 403, "signed_out")
    assert_refused(await browser.deny(page), 403, "signed_out")


@pytest.mark.clause("6749-4.1.2.1-error", "7636-4.4.1-challenge-missing")
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        pytest.param({"grant_types": ("refresh_token",)}, "unauthorized_client", id="the grant"),
        pytest.param({"scope": "realm:main role:organisation"}, "invalid_scope", id="a role"),
        pytest.param({"scope": "realm:cep role:enduser"}, "invalid_scope", id="the realm of the login"),
        pytest.param({"require_pkce": True}, "invalid_request", id="its leave to do without PKCE"),
    ],
)
async def test_scope_lost_by_the_client_makes_no_code(
    make_settings: MakeSettings,
    clock: Clock,
    worker: Worker,
    store: redis.Redis,
    changes: dict[str, object],
    error: str,
) -> None:
    app = await register(worker, "changing")
    async with serving(make_settings(), clock) as before, serving(make_settings(), clock) as after:
        browser = Browser(before)
        page = await browser.open_consent_page(authorization_url(app, scope="role:enduser", state="x"))
        await register(worker, "changing", **changes)
        browser.http = after
        answer = assert_sent_back(await browser.allow(page), error)

    assert answer["state"] == "x"
    assert not [*store.scan_iter("code:*")]


@pytest.mark.clause("6749-4.1.2.1-no-redirect", "6749-3.1.2.4-no-redirect")
@pytest.mark.parametrize("decision", ["allow", "deny"])
@pytest.mark.parametrize("is_deleted", [True, False])
async def test_removed_client_or_uri_gets_no_redirect(
    make_settings: MakeSettings, clock: Clock, worker: Worker, store: redis.Redis, is_deleted: bool, decision: str
) -> None:
    app = await register(worker, "changing")
    async with serving(make_settings(), clock) as before, serving(make_settings(), clock) as after:
        browser = Browser(before)
        page = await browser.open_consent_page(authorization_url(app))
        if is_deleted:
            store.delete(registry_key("client", "changing"))
        else:
            await register(worker, "changing", "https://elsewhere.example/")
        browser.http = after

        assert_refused(await browser.submit(page, CONSENT, {"decision": decision}), 400, "unverified")
    assert not [*store.scan_iter("code:*")]


# Another user


async def test_not_you_ends_the_login_and_leads_to_the_same_request(
    browser: Browser, http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    page = await browser.open_consent_page(authorization_url(state="x"))
    login = await browser.submit(page, SWITCH, {})

    assert is_login_page(login)
    assert SESSION_COOKIE not in browser.cookie_values
    assert not [*store.scan_iter("browser:*")]
    answer = authorization_response(await browser.allow(await browser.log_in(login, BOB)))
    assert answer["state"] == "x"
    tokens = tokens_of(await PHONE_APP.exchange(http, answer["code"], PHONE_CALLBACK))
    assert tokens["scope"] == "realm:main role:enduser"


async def test_not_you_leaves_nothing_to_allow_behind(browser: Browser) -> None:
    page = await browser.open_consent_page(authorization_url())
    session = browser.cookie_values[SESSION_COOKIE]
    await browser.submit(page, SWITCH, {})
    browser.set_cookie(SESSION_COOKIE, session)

    assert_refused(await browser.allow(page), 403, "signed_out")


async def test_consent_page_of_another_user_is_refused(browser: Browser) -> None:
    page = await browser.open_consent_page(authorization_url())
    form = Page(page).find_form(CONSENT)
    await browser.log_in(await browser.submit(await browser.open(authorization_url()), SWITCH, {}), BOB)

    assert_refused(await browser.send(CONSENT, form.fields | {"decision": "allow"}), 400, "expired")
    assert_refused(await browser.open(f"{CONSENT}?request={form.fields['request']}"), 400, "expired")
