"""The choice of a realm for a login: by the request, by the client, or by the user on the page."""

import httpx2
import pytest

from tests.realms.login_steps import ASK_CEP, choose_cep, location_of, log_in_at_provider, query_of
from tests.support.browser import (
    LOGIN,
    SESSIONS,
    Browser,
    HtmlForm,
    Page,
    assert_refused,
    assert_sent_back,
    authorization_response,
    authorization_url,
    is_consent_page,
    page_text,
)
from tests.support.clients_and_users import ALICE, PHONE_APP, PHONE_CALLBACK, SHOP_CALLBACK, WEB_SHOP, tokens_of
from tests.support.fake_provider import FakeProvider

ASK_EITHER = authorization_url(scope="role:enduser")
BUTTON = page_text("login.provider").format(provider="Example Energy Cooperative")
WRONG = page_text("login.error_wrong")

ONLY_MAIN = [
    pytest.param(authorization_url(scope="realm:main role:enduser"), id="the request names main"),
    pytest.param(authorization_url(), id="the default scope names main"),
    pytest.param(authorization_url(WEB_SHOP, SHOP_CALLBACK, scope="role:enduser"), id="the client has main"),
]


def login_forms_of(page: Page) -> list[HtmlForm]:
    return [form for form in page.forms if form.action.endswith(LOGIN)]


async def scope_of(http: httpx2.AsyncClient, browser: Browser, page: httpx2.Response) -> str:
    """Allow what the consent page asks. Returns the granted scope."""
    code = authorization_response(await browser.allow(page))["code"]
    return tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))["scope"]


# Both realms are open


@pytest.mark.clause("decided-realm-choice")
@pytest.mark.parametrize("address", [ASK_EITHER, SESSIONS])
async def test_page_offers_both_open_realms(browser: Browser, cep: None, address: str) -> None:
    page = Page(await browser.open(address))
    ours, theirs = login_forms_of(page)

    assert {"username", "password"} <= ours.fields.keys()
    assert "realm" not in ours.fields
    assert theirs.fields == {"request": ours.fields["request"], "realm": "cep"}
    assert (theirs.method, BUTTON in page.text) == ("post", True)


@pytest.mark.clause("decided-realm-choice", "decided-page-scope-names-realm")
@pytest.mark.parametrize("fields", [{}, {"realm": "main"}, {"realm": ""}])
async def test_a_password_chooses_realm_main(
    browser: Browser, http: httpx2.AsyncClient, cep: None, provider: FakeProvider, fields: dict[str, str]
) -> None:
    page = await browser.log_in(await browser.open(ASK_EITHER), ALICE, **fields)

    assert "Example Energy Cooperative" not in Page(page).text
    assert await scope_of(http, browser, page) == "realm:main role:enduser"
    assert provider.requests == []


@pytest.mark.clause("decided-realm-choice", "decided-page-scope-names-realm")
async def test_the_button_chooses_realm_cep(browser: Browser, http: httpx2.AsyncClient, cep: None) -> None:
    place = await choose_cep(browser, await browser.open(ASK_EITHER))
    page = await browser.open(await log_in_at_provider(place))

    assert "prompt" not in query_of(place)
    assert "Example Energy Cooperative" in Page(page).text
    assert await scope_of(http, browser, page) == "realm:cep role:enduser"


@pytest.mark.clause("spec-2.2-realm-cep")
async def test_typed_password_is_not_sent_by_the_provider_button(
    browser: Browser, cep: None, provider: FakeProvider
) -> None:
    page = await browser.open(ASK_EITHER)
    place = location_of(await browser.log_in(page, ALICE, realm="cep"))
    await browser.open(await log_in_at_provider(place))

    for request in provider.requests:
        sent_texts = [*request.query.values(), *request.form.values(), *request.headers.values()]
        assert not [text for text in sent_texts if ALICE.password in text or ALICE.username in text]


@pytest.mark.clause("6749-10.12-csrf", "decided-realm-choice")
async def test_cross_site_form_starts_no_provider_login(browser: Browser, cep: None, provider: FakeProvider) -> None:
    theirs = Page(await Browser(browser.http).open(ASK_EITHER)).find_form(LOGIN).fields["request"]
    page = await browser.open(ASK_EITHER)

    assert_refused(await browser.submit(page, LOGIN, {"realm": "cep", "request": theirs}), 403, "forged")
    assert_refused(await browser.submit(page, LOGIN, {"realm": "cep", "request": "x"}), 400, "expired")
    assert provider.requests == []


# One realm is open


@pytest.mark.clause("decided-realm-choice")
@pytest.mark.parametrize("address", ONLY_MAIN)
async def test_main_only_client_has_no_provider_login(
    browser: Browser, cep: None, provider: FakeProvider, address: str
) -> None:
    page = await browser.open(address)

    assert (len(login_forms_of(Page(page))), BUTTON in Page(page).text) == (1, False)
    assert_refused(await browser.submit(page, LOGIN, {"realm": "cep"}), 403, "forged")
    assert_refused(await browser.log_in(page, ALICE, realm="cep"), 403, "forged")
    assert provider.requests == []
    assert is_consent_page(await browser.log_in(page))


@pytest.mark.clause("decided-realm-choice", "6749-4.1.2.1-error")
async def test_unconfigured_realm_cannot_be_requested(browser: Browser) -> None:
    answer = assert_sent_back(await browser.open(f"{ASK_CEP}&state=a%20state"), "invalid_scope")

    assert answer["state"] == "a state"
