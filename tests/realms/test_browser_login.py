"""A login in a browser at the identity provider: both redirects, and the identification of the user."""

import base64
import hashlib
import re
from urllib.parse import quote_plus

import httpx2
import pytest

from tests.conftest import Clock, MakeSettings, serving
from tests.realms.login_steps import (
    ASK_CEP,
    CALLBACK,
    EMAIL,
    SUB,
    RegisterRealm,
    location_of,
    log_in,
    log_in_at_provider,
    log_in_through_cep,
    query_of,
    start_login,
)
from tests.support.browser import ISSUER, Browser, cookie_name, is_consent_page, page_text
from tests.support.fake_provider import (
    AUTHORIZE,
    CLAIMS,
    CLIENT_ID,
    CLIENT_SECRET,
    INTROSPECT,
    KEYS,
    OAUTH_METADATA,
    OPENID_METADATA,
    TOKEN,
    USERINFO,
    FakeProvider,
    Reply,
)

RANDOM = re.compile(r"[\w-]{43}", re.ASCII)
"""A text of 256 random bits."""


def paths_of(provider: FakeProvider) -> list[str]:
    return [request.path for request in provider.requests]


def answer_tokens_to_anybody(provider: FakeProvider) -> None:
    """Let the provider accept any client authentication. Userinfo then names the user."""
    provider.answer(TOKEN, Reply(200, {"access_token": "a-token", "token_type": "Bearer"}))
    provider.answer(USERINFO, Reply(200, CLAIMS))


@pytest.mark.clause("spec-2.2-realm-cep", "decided-realm-choice", "decided-external-at-once")
async def test_request_for_an_external_realm_redirects_at_once(
    http: httpx2.AsyncClient, cep: None, provider: FakeProvider
) -> None:
    response = await http.get(ASK_CEP)
    place = location_of(response)
    query = query_of(place)

    assert response.content == b""
    assert response.headers["cache-control"] == "no-store, no-cache"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert place.startswith(f"{provider.url}{AUTHORIZE}?")
    assert all(RANDOM.fullmatch(query.pop(name)) for name in ("nonce", "code_challenge"))
    assert len(query.pop("state")) > 43
    assert query == {
        "response_type": "code",
        "client_id": CLIENT_ID,
        "redirect_uri": f"{ISSUER}{CALLBACK}",
        "scope": "openid email",
        "code_challenge_method": "S256",
    }


async def test_a_nonce_is_sent_with_the_scope_openid_alone(browser: Browser, register_realm: RegisterRealm) -> None:
    await register_realm(scope="email")
    query = query_of(await start_login(browser))

    assert "nonce" not in query
    assert query["scope"] == "email"


async def test_a_query_in_the_providers_address_is_kept(browser: Browser, cep: None, provider: FakeProvider) -> None:
    provider.metadata = {"authorization_endpoint": f"{provider.url}{AUTHORIZE}?tenant=7"}
    place = await start_login(browser)

    assert place.startswith(f"{provider.url}{AUTHORIZE}?tenant=7&response_type=code&")
    assert is_consent_page(await browser.open(await log_in_at_provider(place)))


async def test_redirects_keep_the_web_url_path(
    make_settings: MakeSettings, clock: Clock, registry: None, cep: None
) -> None:
    settings = make_settings(TOKEN_SERVICE_WEB_URL="https://login.example/idp")
    async with serving(settings, clock) as http:
        http.base_url = httpx2.URL("https://login.example")
        browser = Browser(http)
        place = await start_login(browser, f"/idp{ASK_CEP}")

        assert query_of(place)["redirect_uri"] == "https://login.example/idp/authorization/callback"
        assert is_consent_page(await browser.open(await log_in_at_provider(place)))
        assert cookie_name("session", settings.web_url) in browser.cookie_values


async def test_provider_code_is_redeemed_with_callback_and_verifier(
    browser: Browser, cep: None, provider: FakeProvider
) -> None:
    place = await start_login(browser)
    path = await log_in_at_provider(place)
    await browser.open(path)
    (request,) = provider.calls(TOKEN)
    verifier = request.form["code_verifier"]
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()

    assert request.form == {
        "grant_type": "authorization_code",
        "code": query_of(path)["code"],
        "redirect_uri": f"{ISSUER}{CALLBACK}",
        "code_verifier": verifier,
    }
    assert RANDOM.fullmatch(verifier)
    assert challenge == query_of(place)["code_challenge"]
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert not {"cookie", "origin", "referer"} & request.headers.keys()


async def test_provider_basic_credentials_are_form_encoded(
    browser: Browser, register_realm: RegisterRealm, provider: FakeProvider
) -> None:
    secret = "a secret: with 100% + signs & ="
    await register_realm(client_id="token service:1", client_secret=secret)
    place = await start_login(browser)
    state = query_of(place)["state"]
    await browser.open(f"{CALLBACK}?state={state}&code=x&iss={provider.url}")
    (request,) = provider.calls(TOKEN)
    scheme, _, credentials = request.headers["authorization"].partition(" ")

    assert query_of(place)["client_id"] == "token service:1"
    assert scheme == "Basic"
    assert base64.b64decode(credentials).decode() == f"token+service%3A1:{quote_plus(secret)}"
    assert not {"client_id", "client_secret"} & request.form.keys()


@pytest.mark.parametrize("secret", [CLIENT_SECRET, None])
async def test_client_is_named_in_the_body_if_required(
    browser: Browser, register_realm: RegisterRealm, provider: FakeProvider, secret: str | None
) -> None:
    """The provider takes secrets in the body, or the service has none there."""
    if secret is not None:
        provider.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    answer_tokens_to_anybody(provider)
    await register_realm(scope="email", client_secret=secret)
    page = await log_in_through_cep(browser)
    (request,) = provider.calls(TOKEN)

    assert is_consent_page(page)
    assert (request.form["client_id"], request.form.get("client_secret")) == (CLIENT_ID, secret)
    assert "authorization" not in request.headers


@pytest.mark.clause("spec-2.2-realm-cep", "decided-external-source", "decided-external-id-token")
async def test_id_token_names_the_user_without_further_requests(
    browser: Browser, http: httpx2.AsyncClient, cep: None, provider: FakeProvider
) -> None:
    description = await log_in(http, browser)

    assert (description["realm"], description["username"]) == ("cep", SUB)
    assert description["scope"] == "realm:cep role:enduser"
    assert paths_of(provider) == [OPENID_METADATA, AUTHORIZE, TOKEN, KEYS]


@pytest.mark.clause("spec-2.2-realm-cep", "decided-external-source")
async def test_userinfo_names_the_user_without_id_token(
    browser: Browser, http: httpx2.AsyncClient, register_realm: RegisterRealm, provider: FakeProvider
) -> None:
    await register_realm(scope="email")
    description = await log_in(http, browser)
    (request,) = provider.calls(USERINFO)

    assert (description["realm"], description["username"]) == ("cep", SUB)
    assert request.headers["authorization"].startswith("Bearer ")
    assert not {KEYS, INTROSPECT} & set(paths_of(provider))


@pytest.mark.clause("decided-external-source")
async def test_missing_claim_is_fetched_from_userinfo(
    browser: Browser, http: httpx2.AsyncClient, register_realm: RegisterRealm, provider: FakeProvider
) -> None:
    await register_realm(username_claim="email")
    provider.id_token_claims = {"email": None, "email_verified": None}

    assert (await log_in(http, browser))["username"] == EMAIL
    assert len(provider.calls(USERINFO)) == 1


@pytest.mark.clause("decided-external-username")
async def test_realm_may_trust_unverified_addresses(
    browser: Browser, http: httpx2.AsyncClient, register_realm: RegisterRealm, provider: FakeProvider
) -> None:
    await register_realm(username_claim="email", trust_email=True)
    provider.claims["email_verified"] = None

    assert (await log_in(http, browser))["username"] == EMAIL


@pytest.mark.parametrize(
    ("scope", "source"), [("openid", "jwks_uri"), ("email", "userinfo_endpoint"), ("email", "introspection_endpoint")]
)
async def test_provider_with_all_addresses_needs_no_metadata(
    browser: Browser,
    http: httpx2.AsyncClient,
    register_realm: RegisterRealm,
    provider: FakeProvider,
    scope: str,
    source: str,
) -> None:
    places = {"jwks_uri": KEYS, "userinfo_endpoint": USERINFO, "introspection_endpoint": INTROSPECT}
    await register_realm(
        issuer=provider.url if source == "jwks_uri" else None,
        authorization_endpoint=provider.url + AUTHORIZE,
        token_endpoint=provider.url + TOKEN,
        scope=scope,
        **{source: provider.url + places[source]},
    )

    assert (await log_in(http, browser))["username"] == SUB
    assert paths_of(provider) == [AUTHORIZE, TOKEN, places[source]]


PLACES = [
    pytest.param("openid email", OPENID_METADATA, OAUTH_METADATA, id="with openid"),
    pytest.param("email", OAUTH_METADATA, OPENID_METADATA, id="without openid"),
]


@pytest.mark.parametrize(("scope", "first", "second"), PLACES)
async def test_metadata_is_fetched_from_the_second_path(
    browser: Browser, register_realm: RegisterRealm, provider: FakeProvider, scope: str, first: str, second: str
) -> None:
    await register_realm(scope=scope)
    provider.answer(first, Reply(404))
    provider.answer(second, Reply(200, provider.describe()))

    assert (await start_login(browser)).startswith(provider.url + AUTHORIZE)
    assert paths_of(provider) == [first, second]


async def test_metadata_and_keys_are_remembered(http: httpx2.AsyncClient, cep: None, provider: FakeProvider) -> None:
    for _ in range(3):
        assert is_consent_page(await log_in_through_cep(Browser(http)))

    assert (len(provider.calls(OPENID_METADATA)), len(provider.calls(KEYS))) == (1, 1)


@pytest.mark.clause("decided-page-language-kept")
async def test_a_request_for_german_is_german_after_the_provider_too(http: httpx2.AsyncClient, cep: None) -> None:
    browser = Browser(http, accept_language="en")
    page = await log_in_through_cep(browser, f"{ASK_CEP}&ui_locales=de")

    assert is_consent_page(page)
    assert page.headers["content-language"] == "de"
    assert page_text("consent.permissions", "de") in page.text
