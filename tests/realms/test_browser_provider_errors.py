"""Wrong, late and missing responses of an identity provider, its ID tokens, and changes during a login."""

import io
from collections.abc import Callable

import pytest
import redis
from joserfc.jwk import RSAKey

from service.realms.provider.client import NEW_KEYS_SECONDS
from service.store.keys import registry_key
from service.worker import Worker
from tests.realms.failing_logins import (
    ASK,
    CONTENDERS,
    OTHER_ISSUER,
    AssertFault,
    Fault,
    ProviderChange,
    answers,
    assert_healthy,
    assert_login_failed,
    claims,
    fault_case,
    logged_faults,
    tokens_are,
)
from tests.realms.login_steps import RegisterRealm, log_in_at_provider, log_in_through_cep, start_login
from tests.support.browser import Browser, is_consent_page
from tests.support.fake_provider import (
    KEY_NAMES,
    KEYS,
    OPENID_METADATA,
    TOKEN,
    USERINFO,
    Drop,
    FakeProvider,
    Hang,
    Reply,
    running_provider,
)
from tests.support.invalidations import await_invalidations
from tests.support.loop_time import LoopTime

pytestmark = pytest.mark.usefixtures("no_secret_leaks")

PAGE = Reply(200, b"<!doctype html><title>Sign in</title>")
BY_USERINFO = {"scope": "email", "userinfo_endpoint": True}
BY_INTROSPECTION = {"scope": "email", "introspection_endpoint": True}

INVALID_ANSWERS = [
    fault_case("metadata: a page", answers(OPENID_METADATA, PAGE), "not JSON"),
    fault_case("token: a page", answers(TOKEN, PAGE), "not JSON"),
    fault_case("userinfo: a page", answers(USERINFO, PAGE), "not JSON", entry=BY_USERINFO),
    fault_case("token: a connection that ends", answers(TOKEN, Drop()), "closed unexpectedly"),
    fault_case("no metadata", answers(OPENID_METADATA, Reply(404)), "publishes no metadata"),
    fault_case("metadata of another issuer", lambda it: it.metadata.update(issuer=OTHER_ISSUER), "is for the issuer"),
    fault_case(
        "userinfo of another user",
        lambda it: (it.id_token_claims.update(email=None), it.userinfo.update(sub="another"))[0],
        "for different users",
        entry={"username_claim": "email"},
    ),
    fault_case(
        "an inactive token", lambda it: it.introspection.update(active=False), "as inactive", entry=BY_INTROSPECTION
    ),
    fault_case(
        "a missing user name", claims(employee=None), "the claim employee", entry={"username_claim": "employee"}
    ),
    fault_case(
        "our secret is refused", lambda _: None, "the error invalid_client", entry={"client_secret": "another secret"}
    ),
]
REFUSALS = [
    fault_case("a refused code", answers(TOKEN, Reply(400, {"error": "invalid_grant"})), "", "access_denied"),
    fault_case(
        "an unverified address", claims(email_verified=False), "", "access_denied", entry={"username_claim": "email"}
    ),
]


@pytest.mark.clause("decided-external-realm-down", "decided-external-answer-checked", "8414-3.3-issuer-checked")
@pytest.mark.clause("7662-2.2-active-believed", "6749-10.14-input-validated", "decided-external-username")
@pytest.mark.parametrize("fault", INVALID_ANSWERS)
async def test_an_invalid_answer_is_an_outage(assert_fault: AssertFault, fault: Fault) -> None:
    await assert_fault(fault)


@pytest.mark.clause("decided-external-denial", "6749-4.1.2.1-error", "decided-external-username")
@pytest.mark.parametrize("fault", REFUSALS)
async def test_a_refusal_is_access_denied(assert_fault: AssertFault, fault: Fault) -> None:
    await assert_fault(fault)


@pytest.mark.clause("decided-external-realm-down")
async def test_a_late_answer_is_an_outage(assert_fault: AssertFault, time_passes_while_waiting: None) -> None:
    await assert_fault(Fault(answers(TOKEN, Hang()), "no response within 5 s"))


@pytest.mark.clause("decided-external-username")
async def test_verification_counts_only_for_its_own_address(
    provider: FakeProvider, browser: Browser, register_realm: RegisterRealm
) -> None:
    """An ID token vouches only for its own address, which is missing here."""
    await register_realm(username_claim="email")
    provider.id_token_claims = {"email": None, "email_verified": True}
    provider.userinfo = {"email": "somebody@else.example", "email_verified": False}
    assert_login_failed(await log_in_through_cep(browser, ASK), browser, "access_denied")

    provider.id_token_claims = {"email": None, "email_verified": False}
    provider.userinfo = {}
    assert is_consent_page(await log_in_through_cep(browser, ASK))


MOMENT_SECONDS = 0.01


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
        fault_case("another nonce", id_token_says(nonce="another"), "does not have the nonce"),
        fault_case("no ID token", tokens_are(id_token=None), "no ID token"),
        fault_case("an unknown key", signs_with(lambda: other_key(auto_kid=True)), "a key that it does not publish"),
        fault_case("a wrong signature", signs_with(other_key), "a key that it does not publish"),
    ],
)
async def test_an_invalid_id_token_is_an_outage(assert_fault: AssertFault, fault: Fault) -> None:
    await assert_fault(fault)


async def test_a_header_writes_nothing_of_its_own_into_the_log(
    provider: FakeProvider, browser: Browser, cep: None, json_logs: io.StringIO
) -> None:
    """A line break would start another event in the console's log format."""
    provider.id_token_header = {"alg": "RS256\n2026-11-21 [error] made up\x1b[2J" + "R" * 5000}
    assert_login_failed(await log_in_through_cep(browser, ASK), browser, "temporarily_unavailable")

    logged = logged_faults(json_logs)
    assert "ID token is invalid" in logged
    assert logged.isprintable()
    assert len(logged) < 500


@pytest.mark.clause("decided-external-fresh-keys")
@pytest.mark.parametrize(("old", "new"), KEY_NAMES)
async def test_a_new_key_is_found_by_asking_once_more(
    provider: FakeProvider, browser: Browser, cep: None, loop_time: LoopTime, old: str | None, new: str | None
) -> None:
    provider.replace_key(old)
    assert is_consent_page(await log_in_through_cep(browser, ASK))
    loop_time.advance(NEW_KEYS_SECONDS)
    provider.replace_key(new)

    for _ in range(2):
        assert is_consent_page(await log_in_through_cep(Browser(browser.http), ASK))
    assert len(provider.calls(KEYS)) == 2


@pytest.mark.parametrize("has_known_name", [True, False])
async def test_unknown_key_refreshes_the_key_set_once(
    provider: FakeProvider, browser: Browser, cep: None, held_time: LoopTime, has_known_name: bool
) -> None:
    assert is_consent_page(await log_in_through_cep(browser, ASK))
    provider.sign_with(other_key(auto_kid=not has_known_name))
    held_time.advance(NEW_KEYS_SECONDS + MOMENT_SECONDS)
    other = Browser(browser.http)
    assert_login_failed(await log_in_through_cep(other, ASK), other, "temporarily_unavailable")
    assert len(provider.calls(KEYS)) == 2

    for _ in range(3):
        assert_login_failed(await log_in_through_cep(other, ASK), other, "temporarily_unavailable")
    assert len(provider.calls(KEYS)) == 2


@pytest.mark.clause("decided-external-follows-the-record")
@pytest.mark.parametrize("names_itself", [True, False])
async def test_a_realm_that_another_provider_has_now(
    provider: FakeProvider, browser: Browser, register_realm: RegisterRealm, names_itself: bool
) -> None:
    """The code is not sent to the other provider, with or without an `iss` in the redirect."""
    if not names_itself:
        provider.redirect = {"iss": None}
    await register_realm()
    path = await log_in_at_provider(await start_login(browser, ASK))
    async with running_provider() as elsewhere:
        elsewhere.metadata = {"authorization_response_iss_parameter_supported": names_itself}
        await register_realm(issuer=elsewhere.url)
        assert_login_failed(await browser.open(path), browser, "temporarily_unavailable")
        assert elsewhere.calls(TOKEN) == []

    provider.redirect = {}
    await assert_healthy(register_realm, provider, browser)


@pytest.mark.clause("6749-4.1.2.1-error")
async def test_a_realm_that_was_removed(
    provider: FakeProvider, browser: Browser, cep: None, worker: Worker, store: redis.Redis
) -> None:
    path = await log_in_at_provider(await start_login(browser, ASK))
    store.rename(registry_key("realm", "cep"), registry_key("realm", "away"))
    await await_invalidations(worker)
    assert_login_failed(await browser.open(path), browser, "invalid_scope")
    assert provider.calls(TOKEN) == []
    assert_login_failed(await browser.open(ASK), browser, "invalid_scope")

    store.rename(registry_key("realm", "away"), registry_key("realm", "cep"))
    assert is_consent_page(await log_in_through_cep(browser, ASK))


@pytest.mark.clause("decided-external-limits")
@pytest.mark.parametrize(
    ("change_provider", "error"),
    [
        pytest.param(claims(sub="z" * 256), "temporarily_unavailable", id="a name that is too long"),
        pytest.param(answers(TOKEN, Reply(403, b"<html>")), "temporarily_unavailable", id="refused by a firewall"),
        pytest.param(answers(TOKEN, Reply(400, {"error": "invalid_grant"})), "access_denied", id="an invented code"),
        pytest.param(
            lambda it: it.redirect.update(iss=OTHER_ISSUER), "temporarily_unavailable", id="an invented issuer"
        ),
    ],
)
async def test_one_person_cannot_shut_the_provider_out_for_all(
    provider: FakeProvider, browser: Browser, register_realm: RegisterRealm, change_provider: ProviderChange, error: str
) -> None:
    """Neither the user name at the provider nor the user's input can open the circuit for all users."""
    await register_realm()
    change_provider(provider)
    for _ in range(CONTENDERS + 5):
        assert_login_failed(await log_in_through_cep(browser, ASK), browser, error)

    await assert_healthy(register_realm, provider, browser)
