"""Wrong, late and missing responses of an identity provider, and claims that are not names."""

from __future__ import annotations

import gzip
import io
import json
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
    tokens_are,
)
from tests.realms.login_steps import RegisterRealm, log_in_at_provider, log_in_through_cep, open_callback, start_login
from tests.support.browser import Browser, Page, is_consent_page
from tests.support.fake_provider import (
    CLAIMS,
    CLIENT_SECRET,
    INTROSPECT,
    KEYS,
    OPENID_METADATA,
    TOKEN,
    USERINFO,
    Answer,
    Drop,
    Endless,
    FakeProvider,
    Hang,
    Raw,
    Reply,
    Slowly,
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
    "500": (Reply(500, b"an error"), "status 500"),
    "500 with what would be right": (Reply(500, {"sub": "x", "active": True, "access_token": "x"}), "status 500"),
    "201": (Reply(201, {"sub": "x", "active": True, "access_token": "x"}), "status 201"),
    "204": (Reply(204), "status 204"),
    "a page": (Reply(200, b"<!doctype html><title>Sign in</title>"), "not JSON"),
    "nothing": (Reply(200), "not JSON"),
    "null": (Reply(200, b"null"), "not JSON"),
    "a list": (Reply(200, b"[{}]"), "not JSON"),
    "brackets without end": (Reply(200, b"[" * 200_000), "not JSON"),
    "not UTF-8": (Reply(200, b'{"sub":"\xff","access_token":"x"}'), "not JSON"),
    "two answers in one": (Reply(200, b"{}{}"), "not JSON"),
    "half an answer": (Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}"), "broke off"),
    "no HTTP": (Raw(b"SSH-2.0-OpenSSH\r\n"), "broke off"),
    "bad chunks": (Raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}"), "broke off"),
    "a connection that ends": (Drop(), "broke off"),
    "more than anybody would read": (Endless(), "longer than"),
    "a head without end": (Endless(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 100), "broke off"),
    "packed": (Reply(200, gzip.compress(json.dumps(CLAIMS).encode()), {"content-encoding": "gzip"}), "it packs"),
    "our secret as an error": (Raw(f"HTTP/1.1 200 OK\r\n{CLIENT_SECRET}\r\n\r\n".encode()), "broke off"),
    "our secret as an answer": (Reply(200, CLIENT_SECRET.encode()), "not JSON"),
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
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Hang(), id="never"),
        pytest.param(Slowly(Reply(200, b"{}"), pause_seconds=0.1), id="letter by letter"),
        pytest.param(Endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), id="always about to"),
    ],
)
async def test_an_answer_that_does_not_come_in_time(
    assert_fault: AssertFault, time_passes_while_waiting: None, path: str, answer: Answer
) -> None:
    await assert_fault(Fault(answers(path, answer), "no answer within 5 s", entry=ASKED[path]))


@pytest.mark.clause("decided-external-realm-down", "decided-external-answer-checked")
@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("status", [302, 307])
async def test_no_redirect_is_followed(assert_fault: AssertFault, path: str, status: int) -> None:
    """A redirect would send the code, the token or the secret to another address."""
    async with running_provider() as elsewhere:
        moved = Reply(status, headers={"location": elsewhere.url + path})
        await assert_fault(Fault(answers(path, moved), f"status {status}", entry=ASKED[path]))
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


def publishes_no_source(provider: FakeProvider) -> None:
    provider.metadata = {"userinfo_endpoint": None, "introspection_endpoint": None, "jwks_uri": None}


def refuses(path: str, status: int, body: Mapping[str, object]) -> ProviderChange:
    return answers(path, Reply(status, body))


@pytest.mark.clause(
    "decided-external-realm-down", "8414-3.3-issuer-checked", "7662-2.2-active-believed", "decided-external-denial"
)
@pytest.mark.parametrize(
    "fault",
    [
        fault_case("metadata of another issuer", metadata_say(issuer=OTHER_ISSUER), "that of the issuer"),
        fault_case("metadata of nobody", metadata_say(issuer=None), "not JSON of the form"),
        fault_case("metadata of a number", metadata_say(issuer=7), "not JSON of the form"),
        fault_case(
            "metadata without an authorization endpoint", metadata_say(authorization_endpoint=None), "names no auth"
        ),
        fault_case("metadata without a token endpoint", metadata_say(token_endpoint=None), "names no auth"),
        fault_case("metadata without a source of who it is", publishes_no_source, "no way to learn who"),
        fault_case(
            "a token endpoint without TLS", metadata_say(token_endpoint="http://org.example/"), "not one to speak to"
        ),
        fault_case(
            "a login page that is a script", metadata_say(authorization_endpoint="javascript:x"), "not one to speak"
        ),
        fault_case("no metadata anywhere", answers(OPENID_METADATA, Reply(404)), "publishes no metadata"),
        fault_case("a token of another type", tokens_are(token_type="mac"), "no bearer token"),
        fault_case("a token bound to a key", tokens_are(token_type="DPoP"), "no bearer token"),
        fault_case("a token of no type", tokens_are(token_type=None), "not JSON of the form"),
        fault_case("no access token", tokens_are(access_token=None), "not JSON of the form"),
        fault_case("an empty access token", tokens_are(access_token=""), "no bearer token"),
        fault_case("an access token with a line end", tokens_are(access_token="a\r\nx: y"), "no bearer token"),
        fault_case("an access token that is a number", tokens_are(access_token=7), "not JSON of the form"),
        fault_case("the code is refused", refuses(TOKEN, 400, {"error": "invalid_grant"}), "", "access_denied"),
        fault_case(
            "the request is refused", refuses(TOKEN, 400, {"error": "invalid_request"}), "error invalid_request"
        ),
        fault_case(
            "our secret is refused",
            lambda _: None,
            "the error invalid_client",
            entry={"client_secret": "another secret"},
        ),
        fault_case("too many requests", refuses(TOKEN, 429, {"error": "slow down"}), "error too_many_requests"),
        fault_case("a refusal that is no code", refuses(TOKEN, 400, {"error": CLIENT_SECRET}), "error (not a code)"),
        fault_case("a refusal without a code", refuses(TOKEN, 400, {}), "not JSON of the form"),
        fault_case(
            "a refusal with status 200", refuses(TOKEN, 200, {"error": "invalid_grant"}), "not JSON of the form"
        ),
        fault_case(
            "userinfo of somebody else",
            lambda it: (it.id_token_claims.update(email=None), it.userinfo.update(sub="another"))[0],
            "another user",
            entry={"username_claim": "email"},
        ),
        fault_case(
            "userinfo of nobody",
            lambda it: (it.id_token_claims.update(email=None), it.userinfo.update(sub=None))[0],
            "another user",
            entry={"username_claim": "email"},
        ),
        fault_case("a token that userinfo does not know", refuses(USERINFO, 401, {}), "status 401", entry=BY_USERINFO),
        fault_case(
            "a token that is not active",
            lambda it: it.introspection.update(active=False),
            "not active",
            entry=BY_INTROSPECTION,
        ),
        fault_case(
            "a token of which that is not said",
            lambda it: it.introspection.update(active=None),
            "not active",
            entry=BY_INTROSPECTION,
        ),
        fault_case(
            "a token of which it is said in words",
            lambda it: it.introspection.update(active="true"),
            "not active",
            entry=BY_INTROSPECTION,
        ),
        fault_case(
            "our secret is refused at introspection",
            refuses(INTROSPECT, 401, {"error": "invalid_client"}),
            "status 401",
            entry=BY_INTROSPECTION,
        ),
    ],
)
async def test_a_provider_that_is_not_in_order(assert_fault: AssertFault, fault: Fault) -> None:
    await assert_fault(fault)


NO_NAMES = {
    "missing": None,
    "empty": "",
    "too long": "z" * 256,
    "with a line end": "zoe\n",
    "with a line end inside": "zoe\r\nX: y",
    "with a control character": "zoe\x00",
    "true": True,
    "false": False,
    "a list": ["zoe"],
    "an object": {"name": "zoe"},
    "not whole": 1.5,
    "a number that is too long": 10**300,
}


@pytest.mark.clause("decided-external-realm-down", "6749-10.14-input-validated", "decided-external-username")
@pytest.mark.parametrize("entry", [{}, BY_USERINFO, BY_INTROSPECTION], ids=["ID token", "userinfo", "introspection"])
@pytest.mark.parametrize("name", NO_NAMES)
async def test_a_claim_that_is_no_name(assert_fault: AssertFault, entry: Mapping[str, object], name: str) -> None:
    await assert_fault(
        Fault(claims(employee=NO_NAMES[name]), "the claim employee", entry={**entry, "username_claim": "employee"})
    )


@pytest.mark.clause("decided-external-username")
@pytest.mark.parametrize("name", ["z", "z" * 255, "zoe:zoe", "zoe zoe", "Zoë \U0001d4b5", "-", "*"])
async def test_a_claim_that_is_an_unusual_name(provider: FakeProvider, browser: Browser, cep: None, name: str) -> None:
    provider.claims["sub"] = name
    page = await log_in_through_cep(browser, ASK)

    assert is_consent_page(page)
    assert name in Page(page).text


@pytest.mark.clause("6749-4.1.2.1-error", "decided-external-username")
@pytest.mark.parametrize("verified", [False, "false", "", 0, None], ids=repr)
@pytest.mark.parametrize("entry", [{}, BY_USERINFO, BY_INTROSPECTION], ids=["ID token", "userinfo", "introspection"])
async def test_an_address_that_the_provider_does_not_call_verified(
    assert_fault: AssertFault, entry: Mapping[str, object], verified: object
) -> None:
    await assert_fault(
        Fault(claims(email_verified=verified), "", "access_denied", {**entry, "username_claim": "email"})
    )


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
