"""The language of each page: chosen by ui_locales or Accept-Language, and kept over all steps of a login."""

from urllib.parse import urlencode

import httpx2
import pytest
import redis

from tests.support.browser import (
    AUTHORIZATION,
    LOGIN,
    SESSIONS,
    SWITCH,
    Browser,
    Page,
    authorization_response,
    authorization_url,
    is_consent_page,
    is_login_page,
    page_text,
)

GERMAN_REQUEST = authorization_url(ui_locales="fr de_AT en")


def assert_language(page: httpx2.Response, language: str, *texts: str) -> None:
    """Assert that the page is in this language by its headers and its root element, and has these texts."""
    found = [page.headers.get(name) for name in ("content-language", "vary")]
    assert found == [language, "Accept-Language"], page.text
    assert f'<html lang="{language}">' in page.text
    for text in texts:
        assert page_text(text, language) in Page(page).text


@pytest.mark.clause("decided-page-language")
@pytest.mark.parametrize(
    ("accept_language", "expected"),
    [(None, "en"), ("de-CH, en;q=0.9", "de"), ("fr, en;q=0.5, de;q=0.4", "en"), ("de_AT", "de"), ("\xff;q=\xfe", "en")],
)
@pytest.mark.parametrize(("path", "text"), [("/", "start.heading"), (SESSIONS, "login.heading")])
async def test_the_browser_chooses_the_language_of_a_page(
    http: httpx2.AsyncClient, path: str, text: str, accept_language: str | None, expected: str
) -> None:
    headers = [] if accept_language is None else [(b"Accept-Language", accept_language.encode("latin-1"))]

    assert_language(await http.get(path, headers=headers), expected, text)


@pytest.mark.clause("decided-page-language", "decided-page-language-kept")
async def test_a_request_for_german_stays_german_to_its_end(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    browser = Browser(http, accept_language="en")
    page = await browser.open(GERMAN_REQUEST)
    assert_language(page, "de", "login.heading", "login.stay_hint")
    page = await browser.log_in(page, password="a guess")
    assert_language(page, "de", "login.error_wrong")
    page = await browser.log_in(page, password="")
    assert_language(page, "de", "login.password_missing")
    consent = await browser.log_in(page)
    assert is_consent_page(consent)
    assert_language(consent, "de", "consent.permissions", "role.enduser", "consent.allow")
    assert "30 Tage lang nicht genutzt" in Page(consent).text
    [key] = store.scan_iter("consent:*")
    record = str(store.get(key))
    assert record.count('"language":"de"') == record.count('"language"') == 1

    assert authorization_response(await browser.allow(consent))["code"]
    assert_language(await browser.open(str(consent.url)), "de", "refused.answered_heading")


@pytest.mark.clause("decided-page-language-kept")
async def test_another_user_is_asked_for_in_the_same_language(http: httpx2.AsyncClient) -> None:
    browser = Browser(http, accept_language="en")
    page = await browser.submit(await browser.open_consent_page(GERMAN_REQUEST), SWITCH, {})

    assert is_login_page(page)
    assert_language(page, "de", "login.heading")


@pytest.mark.clause("decided-page-language-kept")
async def test_consent_uses_the_language_of_the_request(http: httpx2.AsyncClient) -> None:
    browser = Browser(http, accept_language="en")
    assert_language(await browser.sign_in(), "en", "sessions.heading")

    assert_language(await browser.open(GERMAN_REQUEST), "de", "consent.permissions")
    assert_language(await browser.open(authorization_url()), "en", "consent.permissions")


@pytest.mark.clause("decided-page-language")
@pytest.mark.parametrize("ui_locales", ["fr", "%", "fr" * 1000 + " en"])
async def test_unknown_language_is_ignored(http: httpx2.AsyncClient, ui_locales: str) -> None:
    browser = Browser(http, accept_language="de")
    page = await browser.open(authorization_url(ui_locales=ui_locales))

    assert is_login_page(page)
    assert_language(page, "de")


async def test_ui_locales_may_stand_once(browser: Browser) -> None:
    answer = authorization_response(await browser.open(f"{authorization_url(ui_locales='de')}&ui_locales=de"))

    assert (answer["error"], "ui_locales" in answer["error_description"]) == ("invalid_request", True)


async def test_an_error_page_is_in_the_language_of_the_request(browser: Browser) -> None:
    query = urlencode({"client_id": "unknown", "ui_locales": "de"})
    page = await browser.open(f"{AUTHORIZATION}?{query}")

    assert page.status_code == 400
    assert_language(page, "de", "refused.unverified_heading", "refused.detail")
    assert '<p lang="en">' in page.text


@pytest.mark.parametrize("language", ["en", "de"])
async def test_error_pages_without_a_request_follow_the_browser(http: httpx2.AsyncClient, language: str) -> None:
    browser = Browser(http, accept_language=language)
    assert_language(await browser.open(LOGIN), language, "refused.expired_heading")
    page = await browser.sign_in()
    assert_language(page, language, "sessions.heading", "sessions.none")
    forged = await browser.send(f"{SESSIONS}sign-out", {"csrf": "x"})
    assert_language(forged, language, "refused.forged_message")
    left = await browser.submit(page, f"{SESSIONS}sign-out", {})
    assert_language(left, language, "login.notice_signed_out_here")
