"""Wrong, late and missing responses of an identity provider."""

from __future__ import annotations

import pytest

from tests.realms.failing_logins import (
    ASK,
    OTHER_ISSUER,
    AssertFault,
    Fault,
    answers,
    assert_login_failed,
    claims,
    fault_case,
)
from tests.realms.login_steps import RegisterRealm, log_in_through_cep
from tests.support.browser import Browser, is_consent_page
from tests.support.fake_provider import (
    INTROSPECT,
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

pytestmark = pytest.mark.usefixtures("no_secret_leaks")

PAGE = Reply(200, b"<!doctype html><title>Sign in</title>")
BY_USERINFO = {"scope": "email", "userinfo_endpoint": True}
BY_INTROSPECTION = {"scope": "email", "introspection_endpoint": True}

INVALID_ANSWERS = [
    fault_case("metadata: a page", answers(OPENID_METADATA, PAGE), "not JSON"),
    fault_case("token: a page", answers(TOKEN, PAGE), "not JSON"),
    fault_case("keys: a page", answers(KEYS, PAGE), "not JSON"),
    fault_case("userinfo: a page", answers(USERINFO, PAGE), "not JSON", entry=BY_USERINFO),
    fault_case("introspection: a page", answers(INTROSPECT, PAGE), "not JSON", entry=BY_INTROSPECTION),
    fault_case("token: a connection that ends", answers(TOKEN, Drop()), "broke off"),
    fault_case("no metadata", answers(OPENID_METADATA, Reply(404)), "publishes no metadata"),
    fault_case("metadata of another issuer", lambda it: it.metadata.update(issuer=OTHER_ISSUER), "that of the issuer"),
    fault_case(
        "userinfo of another user",
        lambda it: (it.id_token_claims.update(email=None), it.userinfo.update(sub="another"))[0],
        "another user",
        entry={"username_claim": "email"},
    ),
    fault_case(
        "an inactive token", lambda it: it.introspection.update(active=False), "not active", entry=BY_INTROSPECTION
    ),
    fault_case(
        "a missing user name", claims(employee=None), "the claim employee", entry={"username_claim": "employee"}
    ),
    fault_case(
        "our secret is refused",
        lambda _: None,
        "the error invalid_client",
        entry={"client_secret": "another secret"},
    ),
]
REFUSALS = [
    fault_case("a refused code", answers(TOKEN, Reply(400, {"error": "invalid_grant"})), "", "access_denied"),
    fault_case(
        "an unverified address",
        claims(email_verified=False),
        "",
        "access_denied",
        entry={"username_claim": "email"},
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
    await assert_fault(Fault(answers(TOKEN, Hang()), "no answer within 5 s"))


@pytest.mark.clause("decided-external-realm-down", "decided-external-answer-checked")
async def test_a_redirect_is_not_followed(assert_fault: AssertFault) -> None:
    """A redirect would send the code, the token or the secret to another address."""
    async with running_provider() as elsewhere:
        moved = Reply(307, headers={"location": elsewhere.url + TOKEN})
        await assert_fault(Fault(answers(TOKEN, moved), "status 307"))
        assert elsewhere.requests == []


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
