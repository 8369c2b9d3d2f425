"""Headers of every page over HTTP: they keep it out of frames, caches and the reach of scripts and other sites."""

import httpx2
import pytest
import redis

from tests.conftest import Clock, MakeSettings, serving
from tests.support.browser import (
    AUTHORIZATION,
    CONSENT,
    LOGIN,
    SESSIONS,
    Browser,
    Page,
    assert_refused,
    authorization_response,
    authorization_url,
    is_login_page,
)
from tests.support.clients_and_users import ALICE, SHOP_CALLBACK, WEB_SHOP, assert_error

PAGES = {
    "start": "/",
    "login": authorization_url(),
    "a mistake of the client": authorization_url(client_id="nobody"),
    "login for one's own sessions": SESSIONS,
    "too old": f"{LOGIN}?request=x",
    "signed out": f"{CONSENT}?request=x",
}
KNOWN_ORIGIN = "https://shop.example"
ASSETS = ("/authorization/assets/page.css", "/authorization/assets/page.js", "/authorization/assets/logo")


def assert_protected(response: httpx2.Response) -> None:
    headers = response.headers
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store, no-cache"
    assert not [name for name in headers if name.startswith("access-control-")]


def policy_of(response: httpx2.Response) -> dict[str, list[str]]:
    directives = [directive.split() for directive in response.headers["content-security-policy"].split(";")]
    return {name: sources for name, *sources in directives}


def assert_page_protected(response: httpx2.Response) -> None:
    assert_protected(response)
    is_isolated = not response.url.path.startswith("/authorization/")
    assert response.headers.get("cross-origin-opener-policy") == ("same-origin" if is_isolated else None)
    policy = policy_of(response)
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == ["'none'"]
    assert policy["style-src"] == policy["img-src"] == ["'self'"]
    has_script = response.url.path == SESSIONS and not is_login_page(response)
    assert policy.get("script-src") == (["'self'"] if has_script else None)
    assert not {"frame-src", "connect-src", "object-src"} & policy.keys()
    assert policy.get("form-action", ["'self'"]) == ["'self'"]
    assert response.headers["content-type"] == "text/html; charset=utf-8"


async def visit_all_pages(http: httpx2.AsyncClient) -> list[httpx2.Response]:
    """Return each response, redirects included, that a browser gets on a way through all pages and their assets."""
    answers: list[httpx2.Response] = []

    async def keep(response: httpx2.Response) -> None:
        answers.append(response)

    http.event_hooks["response"].append(keep)
    browser = Browser(http)
    for address in (
        *PAGES.values(),
        *ASSETS,
        "/sessions",
        f"{AUTHORIZATION}callback?state=x",
        authorization_url(scope="no scope"),
    ):
        await browser.open(address)
    await browser.log_in(await browser.open(authorization_url()), ALICE, password="wrong")
    await browser.allow(await browser.open_consent_page(authorization_url()))
    await browser.deny(await browser.open_consent_page(authorization_url()))
    await browser.submit(await browser.open(SESSIONS), "sign-out", {})
    return answers


@pytest.mark.clause(
    "decided-pages-hsts", "6749-10.13-no-framing", "6819-5.2.2.6-no-framing", "6819-4.4.1.9-clickjacking"
)
@pytest.mark.parametrize(
    ("web_url", "expected"),
    [("http://id.example", []), ("https://id.example", ["max-age=31536000"]), ("https://localhost", [])],
)
async def test_pages_send_all_protective_headers(
    make_settings: MakeSettings, clock: Clock, registry: None, web_url: str, expected: list[str]
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_WEB_URL=web_url), clock) as http:
        http.base_url = httpx2.URL(web_url)
        responses = await visit_all_pages(http)

    assert {200, 303, 400, 403} <= {response.status_code for response in responses}
    for response in responses:
        assert response.headers.get_list("strict-transport-security") == expected, response.url
        if response.is_redirect:
            assert_protected(response)
            assert response.content == b""
        elif response.url.path not in ASSETS:
            assert_page_protected(response)


@pytest.mark.clause("decided-form-policy")
async def test_only_pages_that_lead_nowhere_else_bind_their_forms(browser: Browser) -> None:
    """Browsers apply the policy of the form's page to the redirects that follow the form."""
    login = await browser.open(authorization_url(WEB_SHOP, SHOP_CALLBACK))
    failed = await browser.log_in(login, ALICE, password="wrong")
    consent = await browser.log_in(failed)
    own = await browser.open(SESSIONS)

    for page in (login, failed, consent):
        assert "form-action" not in policy_of(page)
    assert policy_of(own)["form-action"] == ["'self'"]


@pytest.mark.clause("decided-pages-never-cors")
@pytest.mark.parametrize("origin", [KNOWN_ORIGIN, "null"])
async def test_no_page_may_be_read_by_another_origin_registered_or_not(browser: Browser, origin: str) -> None:
    for address in (*PAGES.values(), ASSETS[0]):
        response = await browser.open(address, Origin=origin)
        assert not [name for name in response.headers if name.startswith("access-control-")]


@pytest.mark.clause("decided-pages-never-cors")
@pytest.mark.parametrize("address", ["/authorization/", LOGIN, CONSENT, SESSIONS, "/sessions/end-all", "/"])
async def test_no_page_answers_a_preflight(browser: Browser, address: str) -> None:
    headers = {"Origin": KNOWN_ORIGIN, "Access-Control-Request-Method": "POST"}
    response = await browser.open(address, method="OPTIONS", **headers)

    assert response.status_code == 405
    assert not [name for name in response.headers if name.startswith("access-control-")]


async def test_head_allows_nothing(browser: Browser) -> None:
    page = await browser.open_consent_page(authorization_url())
    fields = Page(page).find_form(CONSENT).fields
    query = "&".join(f"{name}={value}" for name, value in fields.items())
    for address in (authorization_url(), f"{CONSENT}?{query}&decision=allow"):
        response = await browser.open(address, method="HEAD")
        assert (response.status_code, "location" in response.headers) == (200, False)

    assert "code" in authorization_response(await browser.allow(page))


async def test_page_sets_no_needless_cookie(browser: Browser) -> None:
    for address in ("/", PAGES["a mistake of the client"], PAGES["too old"], PAGES["signed out"]):
        assert "set-cookie" not in (await browser.open(address)).headers


# Requirements on requests


@pytest.mark.parametrize("kind", ["image", "iframe"])
async def test_non_page_requests_do_not_count_as_pages(browser: Browser, store: redis.Redis, kind: str) -> None:
    before = {*store.scan_iter()}
    for address in (authorization_url(), SESSIONS):
        assert_refused(await browser.open(address, **{"Sec-Fetch-Dest": kind}), 403, "forged")

    assert {*store.scan_iter()} <= before
    assert is_login_page(await browser.open(authorization_url(), **{"Sec-Fetch-Dest": "document"}))


@pytest.mark.parametrize("header", ["Cookie", "X-Anything"])
async def test_a_head_of_more_than_64_kib_is_refused_before_it_is_read(browser: Browser, header: str) -> None:
    assert (await browser.http.get("/healthz", headers={header: "a=b; " * 10_000})).status_code == 200

    assert_error(await browser.http.get(SESSIONS, headers={header: "a=b; " * 14_000}), 431, "invalid_request")
