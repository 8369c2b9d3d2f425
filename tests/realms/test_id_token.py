"""Validation of ID tokens, with tokens and keys made by the tests."""

import hmac
import json
from typing import Any

import pytest
from joserfc import jws, jwt
from joserfc.jwk import KeySet, OctKey

from service.protocol.provider_responses import InvalidProviderResponse
from service.realms.provider.id_token import (
    ALGORITHMS,
    LEEWAY_SECONDS,
    Expectation,
    UnknownKey,
    parse_keys,
    verify_id_token,
)
from tests.realms.id_tokens import (
    CLAIMS,
    CLIENT_ID,
    EXPECTED,
    EXPECTED_AT_PAGE,
    ISSUER,
    KEYS,
    NONCE,
    NOW,
    encode,
    key_for,
    make_key,
    publish,
    sign,
    sign_raw,
)

pytestmark = pytest.mark.clause("decided-external-id-token")


def check(text: str, keys: KeySet = KEYS, expected: Expectation = EXPECTED) -> None:
    assert verify_id_token(text, keys, expected)["sub"] == "zoe"


def refuse_signature(text: str, keys: KeySet = KEYS) -> None:
    """Newer keys may help."""
    with pytest.raises(UnknownKey):
        verify_id_token(text, keys, EXPECTED)


def refuse(text: str, keys: KeySet = KEYS, expected: Expectation = EXPECTED) -> str:
    """Newer keys cannot help. Return the reason for the log."""
    with pytest.raises(InvalidProviderResponse) as refusal:
        verify_id_token(text, keys, expected)
    return str(refusal.value)


# Signatures


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_asymmetric_algorithms_work_without_a_warning(algorithm: str) -> None:
    key = key_for(algorithm)
    signed = f"{encode(json.dumps({'alg': algorithm, 'kid': key.kid}).encode())}.{encode(json.dumps(CLAIMS).encode())}"
    signature = jws.JWSRegistry.algorithms[algorithm].sign(signed.encode(), key)

    check(f"{signed}.{encode(signature)}", publish(make_key("another"), key))


def test_a_token_without_a_signature_is_refused() -> None:
    for algorithm in ("none", "None", "NONE", "nOnE"):
        header = json.dumps({"alg": algorithm, "kid": "RSA"}).encode()
        refuse(f"{encode(header)}.{encode(json.dumps(CLAIMS).encode())}.")
        refuse(f"{encode(header)}.{encode(json.dumps(CLAIMS).encode())}.{sign().rpartition('.')[2]}")


def test_a_token_under_a_secret_that_others_know_is_refused() -> None:
    """Neither the public key nor the client secret is accepted as an HMAC secret."""
    public, shared = make_key("RSA").as_pem(private=False), b"secret at the organisation"  # type: ignore[union-attr]
    keys = KeySet([make_key("RSA"), OctKey.import_key({"kty": "oct", "k": encode(shared), "kid": "shared"})])
    for secret, kid in ((public, "RSA"), (shared, "RSA"), (shared, "shared")):
        signed = f"{encode(json.dumps({'alg': 'HS256', 'kid': kid}).encode())}.{encode(json.dumps(CLAIMS).encode())}"
        refuse(f"{signed}.{encode(hmac.digest(secret, signed.encode(), 'sha256'))}", keys)


@pytest.mark.parametrize("algorithm", ["RS1", "ES256K", 7, None])
def test_unlisted_algorithm_is_refused(algorithm: object) -> None:
    header = {"alg": algorithm, "kid": "RSA"}
    refuse(sign_raw(json.dumps(header).encode(), json.dumps(CLAIMS).encode()))
    del header["alg"]
    refuse(sign_raw(json.dumps(header).encode(), json.dumps(CLAIMS).encode()))


def test_a_key_of_another_kind_than_the_algorithm_is_refused() -> None:
    refuse_signature(sign(kid="ES256"), publish(make_key("ES256")))
    refuse_signature(sign(alg="ES256", kid="RSA"))
    refuse_signature(sign(alg="ES256"), publish(make_key("ES384"), kid="RSA"))
    refuse_signature(sign(), publish(make_key("RSA"), use="enc"))


HEADER = b'{"alg":"RS256","kid":"RSA"}'
PAYLOAD = json.dumps(CLAIMS).encode()


@pytest.mark.parametrize(
    "text",
    [
        *("", "..", "x.y.z", "\ud800", "a" * 200_000),
        *(sign() + ".", sign() + ".x.y", sign().rpartition(".")[0]),
        *(sign_raw(header, PAYLOAD) for header in (b'"alg"', b'["alg"]', b"{}", b"{", b"\xff", b"[" * 100_000)),
        *(sign_raw(HEADER, payload) for payload in (b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000)),
        sign_raw(b'{"alg":"RS256","kid":["RSA"]}', PAYLOAD),
    ],
    ids=lambda text: ascii(text)[:30],
)
def test_a_malformed_token_is_refused(text: str) -> None:
    refuse(text)


def test_unknown_critical_header_is_refused() -> None:
    for extension in ("b64", "exp", "http://example.com/extension"):
        header = {"alg": "RS256", "kid": "RSA", "crit": [extension], extension: False}
        refuse(sign_raw(json.dumps(header).encode(), json.dumps(CLAIMS).encode()))


def test_key_in_the_token_is_ignored() -> None:
    stranger = make_key("another")
    header = {"alg": "RS256", "jwk": dict(stranger.as_dict(private=False))}
    registry = jws.JWSRegistry(algorithms=["RS256"], strict_check_header=False)
    for kid in ({}, {"kid": "RSA"}):
        refuse_signature(jwt.encode(header | kid, CLAIMS, stranger, registry=registry))


# Choice of the key


def test_signature_of_no_known_key_causes_a_new_fetch() -> None:
    refuse_signature(sign(kid="new"))
    refuse_signature(sign(), publish(make_key("another"), kid="RSA"))
    refuse_signature(sign(kid=None), publish(make_key("another")))
    for signature in ("", "!", encode(b"x" * 256)):
        refuse_signature(f"{sign().rpartition('.')[0]}.{signature}")


def test_token_without_a_kid_uses_the_only_key() -> None:
    check(sign(kid=None))


@pytest.mark.parametrize(
    "stranger",
    [
        pytest.param({"kty": "AKP", "alg": "ML-DSA-44", "pub": "x", "kid": "x"}, id="an unknown kind"),
        pytest.param({"kty": ["RSA"]}, id="a kind that is no text"),
        pytest.param({"kty": "RSA", "n": "!", "e": "AQAB"}, id="parts that cannot be read"),
        pytest.param({"kty": "RSA", "n": encode(b"\xff" * 64), "e": "AQAB"}, id="a key too short to trust"),
        pytest.param({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, id="a point off its curve"),
        pytest.param({"kty": "oct", "k": "AA"}, id="a secret"),
        pytest.param(dict(make_key("another").as_dict(private=True)) | {"kid": "RSA"}, id="a private key"),
        pytest.param(None, id="null"),
    ],
)
def test_unusable_key_is_ignored_beside_a_usable_one(stranger: object) -> None:
    right = dict(make_key("RSA").as_dict(private=False))

    for entries in ([stranger, right], [right, stranger]):
        check(sign(), parse_keys({"keys": entries}))


@pytest.mark.parametrize(
    "content",
    [
        {},
        pytest.param({"keys": {"RSA": dict(make_key("RSA").as_dict(private=False))}}, id="a mapping of keys"),
        {"keys": [None]},
        pytest.param(dict(make_key("RSA").as_dict(private=False)), id="a key instead of a set"),
    ],
    ids=lambda content: repr(content)[:20],
)
def test_a_set_without_a_key_is_a_misanswer(content: dict[str, Any]) -> None:
    with pytest.raises(InvalidProviderResponse, match="no usable key"):
        parse_keys(content)


# Claims


@pytest.mark.parametrize("name", ["iss", "sub", "aud", "exp", "iat"])
@pytest.mark.parametrize("value", ["missing", None, {"x": 1}], ids=repr)
def test_a_claim_that_must_be_there_is_there_and_of_its_type(name: str, value: object) -> None:
    claims = {**CLAIMS, name: value}
    if value == "missing":
        del claims[name]

    refuse(sign(claims))


def test_integer_as_the_subject_of_an_id_token_is_refused() -> None:
    assert "'sub'" in refuse(sign(CLAIMS | {"sub": 5}))


@pytest.mark.parametrize("name", ["exp", "iat"])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", f'"{NOW}"', "false", "9" * 5000])
def test_times_must_be_finite_numbers(name: str, number: str) -> None:
    payload = json.dumps(CLAIMS | {name: "here"}).replace('"here"', number)

    refuse(sign_raw(b'{"alg":"RS256","kid":"RSA"}', payload.encode()))


def test_expired_token_is_accepted_within_the_clock_skew() -> None:
    assert LEEWAY_SECONDS == 60
    check(sign(CLAIMS | {"exp": NOW - 59}))
    check(sign(CLAIMS | {"exp": NOW - 59.5}))
    refuse(sign(CLAIMS | {"exp": NOW - 60}))
    refuse(sign(CLAIMS | {"exp": 0}))
    refuse(sign(CLAIMS | {"exp": -1}))


@pytest.mark.parametrize("name", ["iat", "nbf"])
def test_future_token_is_accepted_within_the_clock_skew(name: str) -> None:
    check(sign(CLAIMS | {name: NOW + 60}))
    refuse(sign(CLAIMS | {name: NOW + 61}))


@pytest.mark.parametrize(
    "issuer", ["https://login.example.org/", "https://LOGIN.example.org", "http://login.example.org", [ISSUER]]
)
def test_the_issuer_is_compared_letter_by_letter(issuer: object) -> None:
    refuse(sign(CLAIMS | {"iss": issuer}))


@pytest.mark.parametrize(
    "audience", ["another", "token-service ", "TOKEN-SERVICE", ["another"], [], [7], [[CLIENT_ID]]]
)
def test_id_token_for_another_client_is_refused(audience: object) -> None:
    refuse(sign(CLAIMS | {"aud": audience}))
    refuse(sign(CLAIMS | {"aud": audience, "azp": CLIENT_ID}))


@pytest.mark.parametrize(
    ("audience", "azp", "is_ours"),
    [
        (CLIENT_ID, "another", False),
        (CLIENT_ID, None, False),
        ([CLIENT_ID], "missing", True),
        ([CLIENT_ID, "another"], CLIENT_ID, True),
        ([CLIENT_ID, "another"], "missing", False),
        ([CLIENT_ID, "another"], None, False),
        ([CLIENT_ID, {}], CLIENT_ID, False),
    ],
)
def test_a_token_for_several_says_that_it_was_handed_to_us(audience: object, azp: object, is_ours: bool) -> None:
    claims = CLAIMS | {"aud": audience} | ({} if azp == "missing" else {"azp": azp})

    if is_ours:
        check(sign(claims))
    else:
        refuse(sign(claims))


@pytest.mark.parametrize("nonce", ["another", "", "A NONCE", None, 7, [NONCE], "\u00e4", "\ud800"], ids=ascii)
def test_wrong_or_missing_nonce_is_refused(nonce: object) -> None:
    check(sign(CLAIMS | {"nonce": NONCE}), expected=EXPECTED_AT_PAGE)
    assert "nonce" in refuse(
        sign_raw(b'{"alg":"RS256","kid":"RSA"}', json.dumps(CLAIMS | {"nonce": nonce}).encode()),
        expected=EXPECTED_AT_PAGE,
    )
    assert "nonce" in refuse(sign(), expected=EXPECTED_AT_PAGE)


def test_password_grant_needs_no_nonce() -> None:
    check(sign(CLAIMS | {"nonce": "of whatever"}))
