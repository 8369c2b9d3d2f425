"""The start page / over HTTP, with the stylesheet and the logo of all pages."""

import re
from pathlib import Path

import httpx2
import pytest

from tests.conftest import Clock, MakeSettings, serving
from tests.support.browser import Browser, Page, authorization_url

LOGO = "/authorization/assets/logo"
STYLESHEET = re.compile(r'<link rel="stylesheet" href="([^"]+)">')


async def test_the_start_page_names_the_addresses_of_the_service(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    settings = make_settings(
        TOKEN_SERVICE_BASE_URL="https://api.example/tokens", TOKEN_SERVICE_WEB_URL="https://id.example"
    )
    async with serving(settings, clock) as http:
        page = Page(await http.get("/", headers={"Host": "evil.example"}))

    for address in ("https://id.example/authorization/", "https://api.example/tokens/oauth2/v1/token"):
        assert address in page.text
    assert "https://id.example/sessions/" in page.links
    assert "https://api.example/tokens/.well-known/oauth-authorization-server" in page.links
    assert "https://api.example/tokens/openapi.json" in page.links
    assert "evil.example" not in page.response.text


@pytest.mark.parametrize("path", ["", "/people"])
async def test_the_stylesheet_of_the_pages_is_there_and_may_be_kept(
    make_settings: MakeSettings, clock: Clock, registry: None, path: str
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_WEB_URL=f"http://127.0.0.1:8000{path}"), clock) as http:
        [address] = STYLESHEET.findall((await http.get(authorization_url())).text)
        response = await http.get(address)

    assert address.startswith(f"{path}/authorization/assets/page.css?v=")
    assert (response.status_code, response.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert "immutable" in response.headers["cache-control"]
    assert response.headers["x-content-type-options"] == "nosniff"


async def test_default_favicon_is_plain_without_a_logo(http: httpx2.AsyncClient) -> None:
    response = await http.get(LOGO)
    page = (await http.get("/")).text

    assert (response.status_code, response.headers["content-type"]) == (200, "image/svg+xml")
    assert "sandbox" in response.headers["content-security-policy"]
    assert (f'<link rel="icon" href="{LOGO}">' in page, "<img" in page) == (True, False)


@pytest.mark.parametrize("path", ["/favicon.ico", "/people/favicon.ico"])
async def test_a_browser_gets_an_icon_without_a_page(
    make_settings: MakeSettings, clock: Clock, registry: None, path: str
) -> None:
    """Browsers ask for it beside JSON documents, too."""
    async with serving(make_settings(TOKEN_SERVICE_WEB_URL="http://127.0.0.1:8000/people"), clock) as http:
        response = await http.get(path)

    assert (response.status_code, response.headers["content-type"]) == (200, "image/svg+xml")


async def test_logo_is_served_inertly_with_its_type(
    make_settings: MakeSettings, clock: Clock, registry: None, tmp_path: Path
) -> None:
    """An SVG that is opened directly is a document, which could contain a script."""
    logo = tmp_path / "logo.svg"
    logo.write_text('<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>', encoding="utf-8")
    async with serving(make_settings(TOKEN_SERVICE_PAGE_LOGO=str(logo)), clock) as http:
        response = await http.get(LOGO)
        page = await http.get("/")

    assert (response.status_code, response.headers["content-type"]) == (200, "image/svg+xml")
    assert response.content == logo.read_bytes()
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    assert "sandbox" in response.headers["content-security-policy"]
    assert LOGO in page.text


async def test_pages_show_the_service_name_as_text(make_settings: MakeSettings, clock: Clock, registry: None) -> None:
    async with serving(make_settings(TOKEN_SERVICE_PAGE_NAME='<b>"Energy" & Co</b>'), clock) as http:
        response = await Browser(http).open(authorization_url())

    assert '<b>"Energy" & Co</b>' in Page(response).text
    assert "<b>" not in response.text
