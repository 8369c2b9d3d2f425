"""`prompt` and `max_age` of an authorization request, which ask for the password although the browser is logged in."""

import pytest

from tests.conftest import Clock
from tests.support.browser import (
    Browser,
    assert_refused,
    assert_sent_back,
    authorization_response,
    authorization_url,
    is_consent_page,
    is_login_page,
)
from tests.support.clients_and_users import ALICE, BOB, UserCredentials

AGAIN = authorization_url(prompt="login", state="x")


@pytest.mark.clause("decided-log-in-again", "decided-consent-every-time")
@pytest.mark.parametrize("demand", [{"prompt": "login"}, {"prompt": "consent login"}, {"max_age": "0"}])
async def test_demanded_login_leads_to_the_consent_page(browser: Browser, demand: dict[str, str]) -> None:
    await browser.sign_in()
    for _ in range(2):
        page = await browser.open(authorization_url(state="x", **demand))
        assert is_login_page(page)
        page = await browser.log_in(page, UserCredentials(ALICE.username, "a guess"))
        consent = await browser.log_in(page)
        assert is_consent_page(consent)

    assert authorization_response(await browser.allow(consent)).keys() == {"code", "state", "iss"}


@pytest.mark.clause("decided-log-in-again")
async def test_max_age_counts_from_the_login(browser: Browser, clock: Clock) -> None:
    address = authorization_url(max_age="600")
    await browser.sign_in()
    clock.advance(500)
    assert is_consent_page(await browser.open(address))
    clock.advance(110)
    page = await browser.open(address)

    assert is_login_page(page)
    assert is_consent_page(await browser.open(authorization_url(max_age="9999999999")))
    assert is_consent_page(await browser.log_in(page))
    assert is_consent_page(await browser.open(address))


@pytest.mark.clause("decided-log-in-again")
async def test_other_values_of_prompt_are_ignored(browser: Browser) -> None:
    await browser.sign_in()
    for prompt in ("consent", "select_account", "LOGIN", "login\tconsent", ""):
        assert is_consent_page(await browser.open(authorization_url(prompt=prompt, max_age="")))


@pytest.mark.clause("decided-prompt-none")
@pytest.mark.parametrize("prompt", ["none", "login none"])
async def test_prompt_none_is_denied_without_a_page(browser: Browser, prompt: str) -> None:
    await browser.sign_in()
    for it in (browser, Browser(browser.http)):
        answer = assert_sent_back(await it.open(authorization_url(prompt=prompt, state="x")), "access_denied")
        assert (answer["state"], "consent" in answer["error_description"]) == ("x", True)


@pytest.mark.clause("decided-log-in-again", "6749-4.1.2.1-error")
@pytest.mark.parametrize("max_age", ["-1", "+1", "1.5", "1e3", " 1", "٣", "x", "12345678901", "9" * 5000])
async def test_malformed_max_age_is_invalid_request(browser: Browser, max_age: str) -> None:
    answer = assert_sent_back(await browser.open(authorization_url(max_age=max_age, prompt="none")), "invalid_request")

    assert "max_age" in answer["error_description"]


@pytest.mark.clause("decided-log-in-again")
async def test_consents_in_other_tabs_belong_to_the_user(browser: Browser) -> None:
    other_tab = await browser.open_consent_page(authorization_url())
    await browser.log_in(await browser.open(AGAIN))
    assert "code" in authorization_response(await browser.allow(other_tab))

    other_tab = await browser.open(authorization_url())
    await browser.log_in(await browser.open(AGAIN), BOB)
    assert_refused(await browser.allow(other_tab), 400, "expired")
