"""Validation of logout tokens, with tokens and keys made by the tests."""

import json
import re
from typing import Any

import pytest
from joserfc.jwk import KeySet

from service.protocol.errors import InvalidRequest
from service.protocol.logout_token import LogoutToken
from service.realms.provider.id_token import UnknownKey, verify_id_token
from service.realms.provider.logout_token import check_signature, parse_logout_token
from tests.realms.id_tokens import CLAIMS, CLIENT_ID, EXPECTED, KEYS, NOW, encode, make_key, publish, sign, sign_raw
from tests.support.fake_provider import LOGOUT_EVENT

pytestmark = pytest.mark.clause("decided-logout-token")

LOGOUT: dict[str, Any] = {**CLAIMS, "jti": "a token", "events": {LOGOUT_EVENT: {}}}
HEADER = b'{"alg":"RS256","kid":"RSA"}'
DESCRIPTION = re.compile(r"[\x20-\x21\x23-\x5B\x5D-\x7E]+")
MISSING = "missing"


def verify(text: str, keys: KeySet = KEYS) -> LogoutToken:
    signed, token = parse_logout_token(text, EXPECTED)
    check_signature(signed, keys)
    return token


def refuse(text: str, keys: KeySet = KEYS) -> str:
    """Return the description that is sent."""
    with pytest.raises(InvalidRequest) as refusal:
        verify(text, keys)
    assert (refusal.value.error, refusal.value.status) == ("invalid_request", 400)
    assert DESCRIPTION.fullmatch(refusal.value.description)
    return refusal.value.description


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"aud": [CLIENT_ID]},
        {"aud": [CLIENT_ID, "another"], "azp": CLIENT_ID},
        {"iat": NOW - 600},
        {"iat": NOW + 60},
        {"exp": NOW - 59},
        {"nbf": NOW + 60},
        {"events": {LOGOUT_EVENT: {"a member": 1}, "another event": None}},
        {"a claim of their own": 1},
    ],
    ids=repr,
)
def test_right_logout_token_is_accepted(changes: dict[str, Any]) -> None:
    assert verify(sign(LOGOUT | changes)) == ("zoe", "", "a token")
    assert verify(sign(LOGOUT | changes | {"sid": "a login"})) == ("zoe", "a login", "a token")


@pytest.mark.parametrize("kind", [None, "JWT", "jwt", "logout+jwt", "application/logout+jwt"])
def test_type_may_be_that_of_any_jwt(kind: str | None) -> None:
    header = {"alg": "RS256", "kid": "RSA"} | ({} if kind is None else {"typ": kind})

    assert verify(sign_raw(json.dumps(header).encode(), json.dumps(LOGOUT).encode())).username == "zoe"


@pytest.mark.parametrize("kind", ["at+jwt", "secevent+jwt", "", 7, None])
def test_other_type_is_refused(kind: object) -> None:
    header = {"alg": "RS256", "kid": "RSA", "typ": kind}

    assert refuse(sign_raw(json.dumps(header).encode(), json.dumps(LOGOUT).encode())).startswith("The typ of ")


WRONG: dict[str, list[Any]] = {
    "iss": ["https://login.example.org/", "https://another.example"],
    "aud": ["another", ["another"], [CLIENT_ID, "another"], []],
    "exp": [NOW - 60, str(NOW + 60), True],
    "nbf": [NOW + 61],
    "iat": [NOW - 600.5, NOW - 601, NOW + 61, str(NOW)],
    "sub": ["", "x" * 256, "two\nlines", "\ud800", 7],
    "jti": ["", 7],
    "sid": ["", 7, None, ["a login"]],
    "events": [[LOGOUT_EVENT], {}, {LOGOUT_EVENT: None}, {LOGOUT_EVENT: []}, {"x": {}}],
    "nonce": ["a nonce", "", None],
}


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        *((claim, value) for claim in LOGOUT for value in (MISSING, None, {"x": 1})),
        *((claim, value) for claim, values in WRONG.items() for value in values),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_wrong_claim_is_refused_by_its_name(claim: str, value: object) -> None:
    claims = LOGOUT | {claim: value}
    if value == MISSING:
        del claims[claim]

    assert refuse(sign_raw(HEADER, json.dumps(claims).encode())).startswith(f"The {claim} of ")


def test_id_token_is_no_logout_token() -> None:
    """A logout token has no nonce, so that it is no ID token of a browser login either."""
    assert refuse(sign(CLAIMS)).startswith("The jti of ")
    verify_id_token(sign(CLAIMS), KEYS, EXPECTED)


@pytest.mark.parametrize("algorithm", ["none", "HS256", "RS1", 7, None])
def test_unlisted_algorithm_of_a_logout_token_is_refused(algorithm: object) -> None:
    header = {"alg": algorithm, "kid": "RSA"}

    assert refuse(sign_raw(json.dumps(header).encode(), json.dumps(LOGOUT).encode())).startswith("The alg of ")


PAYLOAD = json.dumps(LOGOUT).encode()


@pytest.mark.parametrize(
    "text",
    [
        *("", "..", "x.y.z", "\ud800", "a" * 60_000),
        *(sign(LOGOUT) + ".", sign(LOGOUT) + ".x.y", sign(LOGOUT).rpartition(".")[0]),
        *(sign_raw(header, PAYLOAD) for header in (b'"alg"', b'["alg"]', b"{}", b"{", b"\xff", b"[" * 5_000)),
        *(sign_raw(HEADER, payload) for payload in (b"", b"[]", b"null", b"7", b"{", b"\xff", b"[" * 40_000)),
    ],
    ids=lambda text: ascii(text)[:30],
)
def test_malformed_logout_token_is_refused(text: str) -> None:
    assert refuse(text) == "The logout_token is not a signed JWT."


def test_signature_must_be_of_a_published_key() -> None:
    text, another = sign(LOGOUT), publish(make_key("another"), kid="RSA")
    signed, _, signature = text.rpartition(".")
    other = sign(LOGOUT | {"sub": "yan"}).rpartition(".")[0]
    forged = [sign(LOGOUT, kid="new"), sign(LOGOUT, alg="ES256", kid="RSA"), f"{other}.{signature}"]
    forged += [f"{signed}.{encode(b'x' * 256)}", f"{signed}."]
    for token, keys in [(text, another), *((token, KEYS) for token in forged)]:
        with pytest.raises(UnknownKey):
            verify(token, keys)
