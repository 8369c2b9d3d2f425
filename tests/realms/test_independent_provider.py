"""The independent provider itself: oidc-provider starts, logs its user in without scripts, and issues tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import httpx2
import msgspec
import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from service.registry.seed_file.entries import RealmEntry
from tests.realms.provider import LOGIN, SUB, Provider, realm_of_provider, running_provider
from tests.support.browser import CHALLENGE, VERIFIER, Browser, Page, authorization_response

CALLBACK = "http://127.0.0.1:8000/authorization/callback"


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running_provider(CALLBACK) as provider:
        yield provider


@pytest.fixture
async def http(provider: Provider) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=provider.url, verify=False) as http:
        yield http


@pytest.fixture
async def metadata(http: httpx2.AsyncClient) -> dict[str, Any]:
    answer = await http.get("/.well-known/openid-configuration")
    return dict(answer.raise_for_status().json())


class ProviderBrowser:
    """A browser at the provider, which redirects to addresses with its own host name."""

    def __init__(self, provider: Provider, http: httpx2.AsyncClient) -> None:
        self._url = provider.url
        self._browser = Browser(http)

    async def open(self, address: str) -> httpx2.Response:
        return await self._follow(await self._browser.open(address))

    async def submit(self, page: httpx2.Response, ending: str, **fields: str) -> httpx2.Response:
        return await self._follow(await self._browser.submit(page, ending, fields))

    async def log_in(self, page: httpx2.Response, login: str = LOGIN, password: str = "whatever") -> httpx2.Response:
        return await self.submit(page, Page(page).forms[0].action, login=login, password=password)

    async def _follow(self, response: httpx2.Response) -> httpx2.Response:
        while response.headers.get("location", "").startswith(self._url):
            response = await self._browser.open(response.headers["location"])
        return response


@pytest.fixture
def provider_browser(provider: Provider, http: httpx2.AsyncClient) -> ProviderBrowser:
    return ProviderBrowser(provider, http)


def authorization_address(metadata: dict[str, Any], provider: Provider, **changes: str | None) -> str:
    query: dict[str, str | None] = {
        "response_type": "code",
        "client_id": provider.client_id,
        "redirect_uri": CALLBACK,
        "scope": "openid email",
        "state": "a state",
        "nonce": "a nonce",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
    }
    given = {name: value for name, value in (query | changes).items() if value is not None}
    return f"{metadata['authorization_endpoint']}?{urlencode(given)}"


async def redeem(http: httpx2.AsyncClient, metadata: dict[str, Any], provider: Provider, code: str) -> httpx2.Response:
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK, "code_verifier": VERIFIER}
    credentials = quote_plus(provider.client_id), quote_plus(provider.client_secret)
    return await http.post(metadata["token_endpoint"], data=form, auth=httpx2.BasicAuth(*credentials))


async def test_its_metadata_and_keys_are_served(
    provider: Provider, http: httpx2.AsyncClient, metadata: dict[str, Any]
) -> None:
    assert metadata["issuer"] == provider.url
    assert metadata["id_token_signing_alg_values_supported"] == ["RS256"]
    (key,) = (await http.get(metadata["jwks_uri"])).json()["keys"]
    assert (key["kty"], key["alg"], key["use"], "d" in key) == ("RSA", "RS256", "sig", False)


async def test_its_user_logs_in_and_the_tokens_tell_who_it_is(
    provider: Provider, http: httpx2.AsyncClient, metadata: dict[str, Any], provider_browser: ProviderBrowser
) -> None:
    redirect = authorization_response(
        await provider_browser.log_in(await provider_browser.open(authorization_address(metadata, provider))), CALLBACK
    )
    assert (redirect["state"], redirect["iss"]) == ("a state", provider.url)

    response = await redeem(http, metadata, provider, redirect["code"])
    assert response.status_code == 200, response.text
    tokens = response.json()
    keys = KeySet.import_key_set((await http.get(metadata["jwks_uri"])).json())
    claims = jwt.decode(tokens["id_token"], keys, algorithms=["RS256"]).claims
    expected = {"iss": provider.url, "aud": provider.client_id, "sub": SUB, "nonce": "a nonce"}
    assert claims.items() >= expected.items()

    bearer = {"authorization": f"Bearer {tokens['access_token']}"}
    user = (await http.get(metadata["userinfo_endpoint"], headers=bearer)).json()
    assert user == {"sub": SUB, "email": "zoe@provider.example", "email_verified": True}


async def test_a_spent_or_unknown_code_is_refused(
    provider: Provider, http: httpx2.AsyncClient, metadata: dict[str, Any], provider_browser: ProviderBrowser
) -> None:
    redirect = authorization_response(
        await provider_browser.log_in(await provider_browser.open(authorization_address(metadata, provider))), CALLBACK
    )
    await redeem(http, metadata, provider, redirect["code"])
    for code in (redirect["code"], "guess"):
        refused = await redeem(http, metadata, provider, code)
        assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant")


@pytest.mark.parametrize(("login", "password"), [("yves", "whatever"), ("zoe", ""), ("constructor", "whatever")])
async def test_nobody_else_gets_in(
    provider: Provider, metadata: dict[str, Any], provider_browser: ProviderBrowser, login: str, password: str
) -> None:
    page = await provider_browser.log_in(
        await provider_browser.open(authorization_address(metadata, provider)), login, password
    )
    assert "That is not right." in Page(page).text
    assert "code" in authorization_response(await provider_browser.log_in(page), CALLBACK)


async def test_its_user_may_cancel(
    provider: Provider, metadata: dict[str, Any], provider_browser: ProviderBrowser
) -> None:
    page = await provider_browser.open(authorization_address(metadata, provider))
    assert "<script" not in page.text
    redirect = authorization_response(await provider_browser.submit(page, "/abort"), CALLBACK)
    assert (redirect["error"], redirect["state"], redirect["iss"]) == ("access_denied", "a state", provider.url)


async def test_it_asks_for_pkce(
    provider: Provider, metadata: dict[str, Any], provider_browser: ProviderBrowser
) -> None:
    answer = await provider_browser.open(
        authorization_address(metadata, provider, code_challenge=None, code_challenge_method=None)
    )
    assert authorization_response(answer, CALLBACK)["error"] == "invalid_request"


def test_it_can_be_another_site() -> None:
    with running_provider(CALLBACK, host="localhost") as provider:
        assert urlsplit(provider.url).hostname == "localhost"
        metadata = httpx2.get(f"{provider.url}/.well-known/openid-configuration").json()
        assert (metadata["issuer"], metadata["jwks_uri"]) == (provider.url, f"{provider.url}/jwks")


def test_its_realm_can_be_seeded() -> None:
    provider = Provider("http://127.0.0.1:1")
    entry = msgspec.convert(realm_of_provider(provider, username_claim="email", name=None), RealmEntry)
    assert (entry.issuer, entry.username_claim, entry.name) == (provider.url, "email", "")
