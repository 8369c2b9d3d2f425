"""ID tokens that must be refused, and the keys that sign them."""

from __future__ import annotations

import io
from base64 import urlsafe_b64encode
from collections.abc import Callable

import pytest
from joserfc.jwk import ECKey, Key, KeySet, OKPKey, RSAKey

from service.realms.provider.client import NEW_KEYS_SECONDS
from tests.realms.failing_logins import (
    ASK,
    OTHER_ISSUER,
    AssertFault,
    Fault,
    ProviderChange,
    answers,
    assert_login_failed,
    fault_case,
    logged_faults,
    tokens_are,
)
from tests.realms.login_steps import log_in_through_cep
from tests.support.browser import Browser, is_consent_page
from tests.support.fake_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    KEYS,
    FakeProvider,
    Reply,
    published_key,
    read_wall_clock,
)
from tests.support.loop_time import LoopTime

MOMENT_SECONDS = 0.01

pytestmark = pytest.mark.usefixtures("no_secret_leaks")


def id_token_says(**changes: object) -> ProviderChange:
    def change_provider(provider: FakeProvider) -> None:
        provider.id_token_claims = changes

    return change_provider


def id_token_times(**seconds_from_now: int) -> ProviderChange:
    """Set times relative to the run of the test, not to its collection."""

    def change_provider(provider: FakeProvider) -> None:
        now = read_wall_clock()
        provider.id_token_claims = {name: now + seconds for name, seconds in seconds_from_now.items()}

    return change_provider


def signs_with(make_key: Callable[[], RSAKey | bytes | None], **header: object) -> ProviderChange:
    def change_provider(provider: FakeProvider) -> None:
        provider.sign_with(make_key())
        provider.id_token_header = header

    return change_provider


def other_key(**parameters: bool) -> RSAKey:
    return RSAKey.generate_key(2048, {"use": "sig"}, **parameters)


def forge_id_token(text: str) -> ProviderChange:
    return tokens_are(id_token=text)


@pytest.mark.clause("decided-external-realm-down", "decided-external-id-token")
@pytest.mark.parametrize(
    "fault",
    [
        fault_case("another nonce", id_token_says(nonce="another"), "another nonce"),
        fault_case("no nonce", id_token_says(nonce=None), "another nonce"),
        fault_case("a nonce that is a number", id_token_says(nonce=7), "another nonce"),
        fault_case("a nonce that is not ASCII", id_token_says(nonce="ä"), "another nonce"),
        fault_case("no ID token", tokens_are(id_token=None), "no ID token"),
        fault_case("an empty ID token", forge_id_token(""), "no ID token"),
        fault_case("an ID token that is none", forge_id_token("a.b.c"), "not to be believed"),
        fault_case("an ID token in five parts", forge_id_token("e30.e30.e30.e30.e30"), "not to be believed"),
        fault_case("an ID token that is not ASCII", forge_id_token("ä.ö.ü"), "not to be believed"),
        fault_case("a number for an ID token", tokens_are(id_token=7), "not JSON of the form"),
        fault_case("a bad signature", signs_with(other_key), "bad_signature"),
        fault_case("an unknown key", signs_with(lambda: other_key(auto_kid=True)), "a key that it does not publish"),
        fault_case("a key named by a number", signs_with(published_key, kid=7), "not to be believed"),
        fault_case("no signature", signs_with(lambda: None), "not to be believed"),
        fault_case("no signature and no key", signs_with(lambda: None, kid=None), "not to be believed"),
        fault_case("no signature in other letters", signs_with(lambda: None, alg="None"), "not to be believed"),
        fault_case("a signature by our secret", signs_with(CLIENT_SECRET.encode), "not to be believed"),
        fault_case(
            "a signature by the public key as a secret",
            signs_with(lambda: published_key().as_pem(private=False)),
            "not to be believed",
        ),
        fault_case("a signature of no kind", signs_with(published_key, alg=None), "not to be believed"),
        fault_case("a signature of a kind that is a number", signs_with(published_key, alg=7), "not to be believed"),
        fault_case(
            "a header that must be understood and is not", signs_with(published_key, crit=["x"], x=1), "not to be"
        ),
        fault_case("another audience", id_token_says(aud="another client"), "invalid_claim"),
        fault_case("no audience", id_token_says(aud=None), "missing_claim"),
        fault_case("an audience that is a number", id_token_says(aud=7), "invalid_claim"),
        fault_case("an audience that holds no text", id_token_says(aud=[CLIENT_ID, [7]]), "invalid_claim"),
        fault_case("two audiences and nobody named", id_token_says(aud=[CLIENT_ID, "other"]), "to another client"),
        fault_case(
            "two audiences and the other one named",
            id_token_says(aud=[CLIENT_ID, "other"], azp="other"),
            "to another client",
        ),
        fault_case("handed to another client", id_token_says(azp="other"), "to another client"),
        fault_case("it is over", id_token_times(exp=-120), "expired_token"),
        fault_case("it has no end", id_token_says(exp=None), "missing_claim"),
        fault_case("an end that is text", id_token_says(exp="2999-01-01"), "invalid_claim"),
        fault_case("from the future", id_token_times(iat=3600), "not to be believed"),
        fault_case("not valid yet", id_token_times(nbf=3600), "not to be believed"),
        fault_case("from no time", id_token_says(iat=None), "missing_claim"),
        fault_case("of another issuer", id_token_says(iss=OTHER_ISSUER), "invalid_claim"),
        fault_case("of no issuer", id_token_says(iss=None), "missing_claim"),
        fault_case("of nobody", id_token_says(sub=None), "missing_claim"),
        fault_case("of a number", id_token_says(sub=7), "invalid_claim"),
    ],
)
async def test_an_id_token_that_is_not_to_be_believed(assert_fault: AssertFault, fault: Fault) -> None:
    await assert_fault(fault)


@pytest.mark.parametrize("name", ["nonce", "sub", "aud", "iss", "azp"])
async def test_a_claim_of_the_protocol_that_is_no_text_of_unicode(assert_fault: AssertFault, name: str) -> None:
    """JSON can express half of a surrogate pair, which UTF-8 cannot encode."""
    await assert_fault(Fault(id_token_says(**{name: "\ud800"}), ""))


@pytest.mark.parametrize(
    "change_provider",
    [
        pytest.param(id_token_says(aud=[CLIENT_ID]), id="a list of one audience"),
        pytest.param(id_token_says(aud=[CLIENT_ID, "other"], azp=CLIENT_ID), id="for others too, and handed to us"),
        pytest.param(id_token_says(azp=CLIENT_ID), id="handed to us"),
        pytest.param(id_token_times(exp=0), id="a clock that is late"),
        pytest.param(id_token_times(iat=30), id="a clock that goes ahead"),
    ],
)
async def test_an_id_token_that_is_unusual_and_right(
    provider: FakeProvider, browser: Browser, cep: None, change_provider: ProviderChange
) -> None:
    change_provider(provider)

    assert is_consent_page(await log_in_through_cep(browser, ASK))


@pytest.mark.parametrize(
    "header", [{"alg": "RS256\n2026-11-21 [error] made up\x1b[2J"}, {"alg": "R" * 5000}], ids=["lines", "length"]
)
async def test_a_header_writes_nothing_of_its_own_into_the_log(
    provider: FakeProvider,
    browser: Browser,
    cep: None,
    json_logs: io.StringIO,
    header: dict[str, object],
) -> None:
    """A line break would start another event in the console's log format."""
    provider.id_token_header = header
    assert_login_failed(await log_in_through_cep(browser, ASK), browser, "temporarily_unavailable")

    logged = logged_faults(json_logs)
    assert "not to be believed" in logged
    assert logged.isprintable()
    assert len(logged) < 500


@pytest.mark.parametrize(
    ("algorithm", "make_key"),
    [
        ("RS384", lambda: other_key(auto_kid=True)),
        ("PS256", lambda: other_key(auto_kid=True)),
        ("ES256", lambda: ECKey.generate_key("P-256", auto_kid=True)),
        ("EdDSA", lambda: OKPKey.generate_key("Ed25519", auto_kid=True)),
        ("Ed25519", lambda: OKPKey.generate_key("Ed25519", auto_kid=True)),
    ],
)
async def test_keys_of_every_usual_kind_are_known(
    provider: FakeProvider, browser: Browser, cep: None, algorithm: str, make_key: Callable[[], Key]
) -> None:
    key = make_key()
    provider.keys = [published_key(), key]
    provider.sign_with(key, algorithm)
    assert is_consent_page(await log_in_through_cep(browser, ASK))

    provider.id_token_header = {"kid": published_key().kid}
    other = Browser(browser.http)
    assert_login_failed(await log_in_through_cep(other, ASK), other, "temporarily_unavailable")


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


async def test_keys_that_are_not_for_us_are_passed_over(provider: FakeProvider, browser: Browser, cep: None) -> None:
    good = KeySet(provider.keys).as_dict(private=False)["keys"]
    others: list[object] = [
        7,
        "key",
        {},
        {"kty": "XYZ"},
        {"kty": "RSA", "n": 5},
        {"kty": "EC", "crv": "P-256", "x": "A", "y": "A"},
    ]
    provider.answer(KEYS, Reply(200, {"keys": [*others, *good]}))

    assert is_consent_page(await log_in_through_cep(browser, ASK))


async def test_private_keys_are_passed_over(
    provider: FakeProvider, browser: Browser, cep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library would factor each private key, which takes seconds for these keys and far longer for larger ones."""
    good = KeySet(provider.keys).as_dict(private=False)["keys"]
    number = urlsafe_b64encode(b"\xff" * 2048).decode().rstrip("=")
    private = {"kty": "RSA", "n": number, "e": "AQAB", "d": number}
    provider.answer(KEYS, Reply(200, {"keys": [private, private, *good]}))

    searched: list[int] = []
    factors = "joserfc._rfc7518.rsa_key.rsa_recover_prime_factors"
    monkeypatch.setattr(factors, lambda *numbers: searched.append(numbers[0]))

    assert is_consent_page(await log_in_through_cep(browser, ASK))
    assert searched == []


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"keys": []},
        {"keys": {}},
        {"keys": [{"kty": "XYZ"}]},
        {"keys": [None]},
        {"keys": [published_key().as_dict(private=True)]},
    ],
    ids=["nothing", "none", "no list", "unheard-of", "null", "private"],
)
async def test_a_key_set_without_a_key(assert_fault: AssertFault, keys: dict[str, object]) -> None:
    await assert_fault(Fault(answers(KEYS, Reply(200, keys)), "no key that can be used"))
