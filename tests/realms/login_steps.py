"""Steps of a browser's login at an identity provider."""

from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2

from tests.support.browser import LOGIN, Browser, authorization_response, authorization_url, is_consent_page
from tests.support.clients_and_users import AUDITOR, PHONE_APP, PHONE_CALLBACK, OAuthClient, UserCredentials, tokens_of
from tests.support.fake_provider import CLAIMS

SUB: Final = str(CLAIMS["sub"])
EMAIL: Final = str(CLAIMS["email"])
CEP_SCOPE: Final = "realm:cep role:enduser"
CALLBACK: Final = "/authorization/callback"
ASK_CEP: Final = authorization_url(scope=CEP_SCOPE)


async def start_login(browser: Browser, address: str = ASK_CEP) -> str:
    """Return the address that the service redirects a login request for realm `cep` to."""
    return location_of(await browser.open(address))


async def choose_cep(browser: Browser, page: httpx2.Response) -> str:
    """Press the button of the provider. Returns the address that it leads to."""
    return location_of(await browser.submit(page, LOGIN, {"realm": "cep", "username": "", "password": ""}))


def location_of(response: httpx2.Response) -> str:
    assert response.status_code == 303, response.text
    return str(response.headers["location"])


async def log_in_at_provider(place: str) -> str:
    """Open the provider's address. Returns the path of its redirect back, which needs no page here."""
    async with httpx2.AsyncClient(verify=False) as http:
        response = await http.get(place)
    assert response.status_code == 302, response.text
    return path_of(response.headers["location"])


async def log_in_through_cep(browser: Browser, address: str = ASK_CEP) -> httpx2.Response:
    """Log in at the provider. Returns the page or redirect at the end."""
    return await browser.open(await log_in_at_provider(await start_login(browser, address)))


def path_of(address: str) -> str:
    """Return path and query, as a browser of this service opens them."""
    parts = urlsplit(address)
    return f"{parts.path}?{parts.query}"


def query_of(address: str) -> dict[str, str]:
    pairs = parse_qsl(urlsplit(address).query, keep_blank_values=True, strict_parsing=True)
    assert len(dict(pairs)) == len(pairs), address
    return dict(pairs)


def with_query(path: str, **changes: str | None) -> str:
    """Return the address with changed parameters. None leaves one out."""
    query = {**query_of(path), **changes}
    left = {name: value for name, value in query.items() if value is not None}
    return f"{urlsplit(path).path}?{urlencode(left)}"


async def log_in_with_password(
    http: httpx2.AsyncClient, username: str, password: str, client: OAuthClient = PHONE_APP, scope: str = CEP_SCOPE
) -> httpx2.Response:
    """Send the password grant of realm `cep`."""
    return await client.log_in(http, UserCredentials(username, password, realm="cep"), scope)


RegisterRealm = Callable[..., Awaitable[None]]


async def describe(http: httpx2.AsyncClient, page: httpx2.Response, browser: Browser) -> dict[str, Any]:
    """Allow what the consent page asks. Returns the introspection response for the resulting access token."""
    assert is_consent_page(page), page.text or page.headers
    code = authorization_response(await browser.allow(page))["code"]
    access_token = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))["access_token"]
    described: dict[str, Any] = (await AUDITOR.introspect(http, access_token)).json()
    return described


async def log_in(http: httpx2.AsyncClient, browser: Browser, address: str = ASK_CEP) -> dict[str, Any]:
    return await describe(http, await log_in_through_cep(browser, address), browser)
