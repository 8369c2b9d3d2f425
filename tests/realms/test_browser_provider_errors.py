"""Wrong, late and missing responses of an identity provider, and claims that are not names."""

from __future__ import annotations

import io
from collections.abc import Mapping

import pytest

from tests.realms.failing_logins import (
    ASK,
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
)
from tests.realms.login_steps import RegisterRealm, log_in_at_provider, log_in_through_cep, open_callback, start_login
from tests.support.browser import Browser, Page, is_consent_page
from tests.support.fake_provider import (
    INTROSPECT,
    KEYS,
    OPENID_METADATA,
    TOKEN,
    USERINFO,
    Answer,
    Drop,
    FakeProvider,
    Hang,
    Reply,
    running_provider,
)

pytestmark = pytest.mark.usefixtures("no_secret_leaks")


def metadata_say(**changes: object) -> ProviderChange:
    def change_provider(provider: FakeProvider) -> None:
        provider.metadata = changes

    return change_provider


BY_USERINFO = {"scope": "email", "userinfo_endpoint": True}


BY_INTROSPECTION = {"scope": "email", "introspection_endpoint": True}


ASKED: Mapping[str, Mapping[str, object]] = {
    OPENID_METADATA: {},
    TOKEN: {},
    KEYS: {},
    USERINFO: BY_USERINFO,
    INTROSPECT: BY_INTROSPECTION,
}
"""The provider's endpoints, each with the entry that makes the service call it."""


NO_ANSWERS: Mapping[str, tuple[Answer, str]] = {
    "a page": (Reply(200, b"<!doctype html><title>Sign in</title>"), "not JSON"),
    "a connection that ends": (Drop(), "broke off"),
}


@pytest.mark.clause("decided-external-realm-down", "decided-external-answer-checked")
@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("name", NO_ANSWERS)
async def test_an_answer_that_is_none(assert_fault: AssertFault, provider: FakeProvider, path: str, name: str) -> None:
    answer, logged = NO_ANSWERS[name]
    await assert_fault(Fault(answers(path, answer), logged, entry=ASKED[path]))
    assert provider.calls(path)


@pytest.mark.clause("decided-external-realm-down")
@pytest.mark.parametrize("path", ASKED)
async def test_an_answer_that_does_not_come_in_time(
    assert_fault: AssertFault, time_passes_while_waiting: None, path: str
) -> None:
    await assert_fault(Fault(answers(path, Hang()), "no answer within 5 s", entry=ASKED[path]))


@pytest.mark.clause("decided-external-realm-down", "decided-external-answer-checked")
@pytest.mark.parametrize("path", ASKED)
async def test_no_redirect_is_followed(assert_fault: AssertFault, path: str) -> None:
    """A redirect would send the code, the token or the secret to another address."""
    async with running_provider() as elsewhere:
        moved = Reply(307, headers={"location": elsewhere.url + path})
        await assert_fault(Fault(answers(path, moved), "status 307", entry=ASKED[path]))
        assert elsewhere.requests == []


@pytest.mark.clause("decided-external-realm-down")
async def test_a_provider_that_is_away_when_a_browser_sets_out(
    provider: FakeProvider,
    browser: Browser,
    register_realm: RegisterRealm,
    json_logs: io.StringIO,
) -> None:
    await register_realm()
    async with provider.stopped():
        assert_login_failed(await browser.open(ASK), browser, "temporarily_unavailable")

    assert "it cannot be reached" in logged_faults(json_logs)
    await assert_healthy(register_realm, provider, browser)


@pytest.mark.clause("decided-external-realm-down")
async def test_a_provider_that_is_away_when_a_browser_comes_back(
    provider: FakeProvider,
    browser: Browser,
    register_realm: RegisterRealm,
    json_logs: io.StringIO,
) -> None:
    await register_realm()
    path = await log_in_at_provider(await start_login(browser, ASK))
    async with provider.stopped():
        assert_login_failed(await open_callback(browser, path), browser, "temporarily_unavailable")

    assert "it cannot be reached" in logged_faults(json_logs)
    await assert_healthy(register_realm, provider, browser)


def refuses(path: str, status: int, body: Mapping[str, object]) -> ProviderChange:
    return answers(path, Reply(status, body))


@pytest.mark.clause(
    "decided-external-realm-down", "8414-3.3-issuer-checked", "7662-2.2-active-believed", "decided-external-denial"
)
@pytest.mark.parametrize(
    "fault",
    [
        fault_case("metadata of another issuer", metadata_say(issuer=OTHER_ISSUER), "that of the issuer"),
        fault_case(
            "a token endpoint without TLS", metadata_say(token_endpoint="http://org.example/"), "not one to speak to"
        ),
        fault_case("no metadata anywhere", answers(OPENID_METADATA, Reply(404)), "publishes no metadata"),
        fault_case("the code is refused", refuses(TOKEN, 400, {"error": "invalid_grant"}), "", "access_denied"),
        fault_case(
            "our secret is refused",
            lambda _: None,
            "the error invalid_client",
            entry={"client_secret": "another secret"},
        ),
        fault_case(
            "userinfo of somebody else",
            lambda it: (it.id_token_claims.update(email=None), it.userinfo.update(sub="another"))[0],
            "another user",
            entry={"username_claim": "email"},
        ),
        fault_case(
            "a token that is not active",
            lambda it: it.introspection.update(active=False),
            "not active",
            entry=BY_INTROSPECTION,
        ),
    ],
)
async def test_a_provider_that_is_not_in_order(assert_fault: AssertFault, fault: Fault) -> None:
    await assert_fault(fault)


NO_NAMES = {
    "missing": None,
    "with a line end": "zoe\n",
}


@pytest.mark.clause("decided-external-realm-down", "6749-10.14-input-validated", "decided-external-username")
@pytest.mark.parametrize("entry", [{}, BY_USERINFO, BY_INTROSPECTION], ids=["ID token", "userinfo", "introspection"])
@pytest.mark.parametrize("name", NO_NAMES)
async def test_a_claim_that_is_no_name(assert_fault: AssertFault, entry: Mapping[str, object], name: str) -> None:
    await assert_fault(
        Fault(claims(employee=NO_NAMES[name]), "the claim employee", entry={**entry, "username_claim": "employee"})
    )


@pytest.mark.clause("decided-external-username")
@pytest.mark.parametrize("name", ["z" * 255, "Zoë \U0001d4b5"])
async def test_a_claim_that_is_an_unusual_name(provider: FakeProvider, browser: Browser, cep: None, name: str) -> None:
    provider.claims["sub"] = name
    page = await log_in_through_cep(browser, ASK)

    assert is_consent_page(page)
    assert name in Page(page).text


@pytest.mark.clause("6749-4.1.2.1-error", "decided-external-username")
@pytest.mark.parametrize("entry", [{}, BY_USERINFO, BY_INTROSPECTION], ids=["ID token", "userinfo", "introspection"])
async def test_an_address_that_the_provider_does_not_call_verified(
    assert_fault: AssertFault, entry: Mapping[str, object]
) -> None:
    await assert_fault(Fault(claims(email_verified=False), "", "access_denied", {**entry, "username_claim": "email"}))


@pytest.mark.clause("decided-external-username")
async def test_a_doubt_counts_where_the_address_stands(
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
