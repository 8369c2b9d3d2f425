"""The service's addresses over HTTP: version, methods, spelling, and a base URL with a path."""

import httpx2
import pytest

from tests.conftest import Clock, MakeSettings, serving
from tests.support.browser import Page, page_text
from tests.support.clients_and_users import (
    ALICE,
    GLOBAL_REVOCATION,
    INTROSPECT,
    PHONE_APP,
    REVOKE,
    REVOKE_ALL,
    TOKEN,
    VERIFY,
    assert_error,
    login_form,
    tokens_of,
)


@pytest.mark.clause("spec-9-version-in-path", "spec-0-two-addresses")
async def test_api_paths_begin_with_version_one(http: httpx2.AsyncClient) -> None:
    login = await http.post("/oauth2/v1/token", data=PHONE_APP.credentials | login_form(ALICE))
    revocation = await http.post("/oauth2/v1/revoke", data=PHONE_APP.credentials | {"token": "x"})
    headers = {"Authorization": f"Bearer {tokens_of(login)['access_token']}"}

    assert revocation.status_code == 200
    assert (await http.post("/oauth2/v1/revokeAll", headers=headers)).status_code == 200


@pytest.mark.clause("decided-other-method", "6749-3.2-post-only", "7009-2-post", "decided-cache-headers-everywhere")
@pytest.mark.clause("7662-4-post-only", "7662-2.1-post")
@pytest.mark.parametrize("address", [TOKEN, REVOKE, REVOKE_ALL, INTROSPECT, GLOBAL_REVOCATION])
@pytest.mark.parametrize("method", ["GET", "PUT", "OPTIONS", "X"])
async def test_another_method_than_post_is_405_with_allow(http: httpx2.AsyncClient, method: str, address: str) -> None:
    response = await http.request(method, address)

    assert_error(response, 405, "invalid_request")
    assert response.headers["allow"] == "POST"


@pytest.mark.clause("decided-other-method")
@pytest.mark.parametrize("address", ["/healthz", "/readyz"])
async def test_the_health_addresses_are_read_only(http: httpx2.AsyncClient, address: str) -> None:
    response = await http.post(address)

    assert_error(response, 405, "invalid_request")
    assert "GET" in response.headers["allow"]


@pytest.mark.clause("decided-no-slash-redirect", "decided-unknown-path")
@pytest.mark.parametrize(
    "address",
    [
        pytest.param("/oauth2/v1/token/", id="a slash behind"),
        pytest.param("//oauth2/v1/token", id="a slash before"),
        pytest.param("/oauth2/v1/Token", id="a capital"),
        pytest.param("/oauth2/v1/revokeall", id="a capital too few"),
        pytest.param("/oauth2/v2/token", id="another version"),
        pytest.param("/healthz/", id="a slash behind healthz"),
    ],
)
async def test_other_spellings_of_a_path_are_404(http: httpx2.AsyncClient, address: str) -> None:
    form = PHONE_APP.credentials | login_form(ALICE)

    response = await http.post(f"http://127.0.0.1:8000{address}", data=form)

    assert_error(response, 404, "invalid_request")
    assert "location" not in response.headers


@pytest.mark.clause("spec-0-two-addresses", "decided-base-url-slash")
@pytest.mark.parametrize("base_url", ["https://example.org/login", "https://example.org/login/"])
async def test_a_base_url_may_have_a_path(
    make_settings: MakeSettings, clock: Clock, registry: None, base_url: str
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_BASE_URL=base_url), clock) as http:
        form = PHONE_APP.credentials | login_form(ALICE)
        preflight = {"Origin": "https://shop.example", "Access-Control-Request-Method": "POST"}

        assert (await http.post(f"/login{TOKEN}", data=form)).status_code == 200
        assert (await http.post(f"/login{REVOKE}", data=PHONE_APP.credentials | {"token": "x"})).status_code == 200
        assert (await http.post(f"/login{REVOKE_ALL}")).status_code == 401
        assert (await http.get("/login/healthz")).status_code == 200
        assert (await http.get(f"/login{VERIFY}", headers={"Cookie": "x" * 70_000})).status_code == 401
        for address in (TOKEN, REVOKE, REVOKE_ALL):
            preflight_response = await http.options(f"/login{address}", headers=preflight)
            assert preflight_response.headers["access-control-allow-origin"] == "https://shop.example"


@pytest.mark.parametrize("path", ["", "/login"])
async def test_well_known_spellings_of_pages_redirect(
    make_settings: MakeSettings, clock: Clock, registry: None, path: str
) -> None:
    query = "client_id=a%20b&state=%C3%A4+%26"
    async with serving(make_settings(TOKEN_SERVICE_WEB_URL=f"https://example.org{path}"), clock) as http:
        for prefix in {"", path}:
            page = await http.get(f"{prefix}/authorization?{query}")
            password = await http.get(f"{prefix}/.well-known/change-password")

            assert (page.status_code, page.headers["location"]) == (308, f"{path}/authorization/?{query}")
            assert (password.status_code, password.headers["location"]) == (302, f"{path}/sessions/")


BROWSER_ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.clause("decided-unknown-path", "decided-other-method")
async def test_browsers_get_a_page_at_unknown_addresses(http: httpx2.AsyncClient) -> None:
    browser = {"Accept": BROWSER_ACCEPT, "Accept-Language": "de"}
    unknown = Page(await http.get("/x<b>", headers=browser))
    form_only = Page(await http.get("/sessions/password", headers=browser))

    for page, status in ((unknown, 404), (form_only, 405)):
        assert page.response.status_code == status
        assert page_text("refused.unknown_path_heading", "de") in page.text
        assert page.links == ["/"]
    assert form_only.response.headers["allow"] == "POST"


@pytest.mark.clause("decided-unknown-path")
@pytest.mark.parametrize(
    "accept",
    ["*/*", "application/json, text/html", "application/json", "text/html;q=0", "text/html;q=0.8, application/json"],
)
async def test_programs_get_json_at_unknown_addresses(http: httpx2.AsyncClient, accept: str) -> None:
    assert_error(await http.get("/x", headers={"Accept": accept}), 404, "invalid_request")
    assert_error(await http.post("/x", headers={"Accept": BROWSER_ACCEPT}), 404, "invalid_request")


async def test_a_proxy_may_have_taken_the_path_off(make_settings: MakeSettings, clock: Clock, registry: None) -> None:
    async with serving(make_settings(TOKEN_SERVICE_BASE_URL="https://example.org/login"), clock) as http:
        assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
        assert_error(await http.post(f"/other{TOKEN}"), 404, "invalid_request")
