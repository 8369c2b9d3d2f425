"""ID tokens that must be refused, and the keys that sign them."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from joserfc.jwk import RSAKey

from service.realms.provider.client import NEW_KEYS_SECONDS
from tests.realms.failing_logins import (
    ASK,
    AssertFault,
    Fault,
    ProviderChange,
    assert_login_failed,
    fault_case,
    logged_faults,
    tokens_are,
)
from tests.realms.login_steps import log_in_through_cep
from tests.support.browser import Browser, is_consent_page
from tests.support.fake_provider import (
    KEYS,
    FakeProvider,
    published_key,
)
from tests.support.loop_time import LoopTime

MOMENT_SECONDS = 0.01

pytestmark = pytest.mark.usefixtures("no_secret_leaks")


def id_token_says(**changes: object) -> ProviderChange:
    def change_provider(provider: FakeProvider) -> None:
        provider.id_token_claims = changes

    return change_provider


def signs_with(make_key: Callable[[], RSAKey | bytes | None], **header: object) -> ProviderChange:
    def change_provider(provider: FakeProvider) -> None:
        provider.sign_with(make_key())
        provider.id_token_header = header

    return change_provider


def other_key(**parameters: bool) -> RSAKey:
    return RSAKey.generate_key(2048, {"use": "sig"}, **parameters)


@pytest.mark.clause("decided-external-realm-down", "decided-external-id-token")
@pytest.mark.parametrize(
    "fault",
    [
        fault_case("another nonce", id_token_says(nonce="another"), "another nonce"),
        fault_case("no ID token", tokens_are(id_token=None), "no ID token"),
        fault_case("an unknown key", signs_with(lambda: other_key(auto_kid=True)), "a key that it does not publish"),
    ],
)
async def test_an_invalid_id_token_is_an_outage(assert_fault: AssertFault, fault: Fault) -> None:
    await assert_fault(fault)


async def test_a_header_writes_nothing_of_its_own_into_the_log(
    provider: FakeProvider,
    browser: Browser,
    cep: None,
    json_logs: io.StringIO,
) -> None:
    """A line break would start another event in the console's log format."""
    provider.id_token_header = {"alg": "RS256\n2026-11-21 [error] made up\x1b[2J" + "R" * 5000}
    assert_login_failed(await log_in_through_cep(browser, ASK), browser, "temporarily_unavailable")

    logged = logged_faults(json_logs)
    assert "ID token is invalid" in logged
    assert logged.isprintable()
    assert len(logged) < 500


@pytest.mark.clause("decided-external-id-token")
async def test_a_new_key_is_found_by_asking_once_more(
    provider: FakeProvider, browser: Browser, cep: None, loop_time: LoopTime
) -> None:
    assert is_consent_page(await log_in_through_cep(browser, ASK))
    loop_time.advance(NEW_KEYS_SECONDS)
    key = other_key(auto_kid=True)
    provider.keys = [key, published_key()]
    provider.sign_with(key)

    for _ in range(2):
        assert is_consent_page(await log_in_through_cep(Browser(browser.http), ASK))
    assert len(provider.calls(KEYS)) == 2


async def test_a_key_that_is_nowhere_is_asked_for_once_more_and_then_not_for_a_while(
    provider: FakeProvider, browser: Browser, cep: None, held_time: LoopTime
) -> None:
    assert is_consent_page(await log_in_through_cep(browser, ASK))
    provider.sign_with(other_key(auto_kid=True))
    held_time.advance(NEW_KEYS_SECONDS + MOMENT_SECONDS)
    other = Browser(browser.http)
    assert_login_failed(await log_in_through_cep(other, ASK), other, "temporarily_unavailable")
    assert len(provider.calls(KEYS)) == 2

    for _ in range(3):
        assert_login_failed(await log_in_through_cep(other, ASK), other, "temporarily_unavailable")
    assert len(provider.calls(KEYS)) == 2
