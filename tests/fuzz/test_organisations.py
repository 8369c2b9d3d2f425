"""Responses of an identity provider are valid, or rejected with a reason for the log."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.protocol.authorization import parse_query
from service.protocol.errors import AccessDenied
from service.protocol.provider import IdentityProvider, ProviderEndpoints
from service.protocol.provider_responses import (
    CALLBACK_PARAMETERS,
    InvalidProviderResponse,
    ProviderError,
    check_active,
    get_endpoints,
    parse_claims,
    parse_json,
    parse_metadata,
    parse_token_response,
    read_callback,
    read_person,
)
from service.realms.provider.id_token import UnknownKey, parse_keys, verify_id_token
from tests.fuzz.generators import bent_bytes, bent_text, data, json_values
from tests.realms.id_tokens import CLAIMS, CLIENT_ID, EXPECTED, ISSUER, KEYS, make_key, sign_raw

SECRET = "Tr0ub4dor"
METADATA = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "jwks_uri": f"{ISSUER}/keys",
    "token_endpoint_auth_methods_supported": ["client_secret_post"],
    "authorization_response_iss_parameter_supported": True,
}
TOKENS = {"access_token": "a.b", "token_type": "Bearer", "id_token": "x"}
PROVIDER = IdentityProvider(client_id=CLIENT_ID, issuer=ISSUER)
SERVER = get_endpoints(PROVIDER, msgspec.convert(METADATA, ProviderEndpoints))
statuses = st.sampled_from([200, 201, 302, 400, 401, 429, 500])


def bodies(*good: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """A good answer with other values in it, or bent as text, or anything."""
    changed = st.tuples(
        st.sampled_from(good),
        st.dictionaries(st.sampled_from([*good[0], "error", "active", "keys"]), json_values, max_size=2),
    ).map(lambda pair: msgspec.json.encode(pair[0] | pair[1]))
    return st.one_of(changed, bent_bytes(*map(msgspec.json.encode, good)), data, json_values.map(msgspec.json.encode))


@example(b"[" * 100_000)
@given(bodies(METADATA))
def test_metadata_is_read_or_a_misanswer(body: bytes) -> None:
    with suppress(InvalidProviderResponse):
        get_endpoints(PROVIDER, parse_metadata(body, ISSUER))
    with suppress(InvalidProviderResponse):
        parse_json(body, dict[str, Any], "it")


@given(statuses, bodies(TOKENS, {"error": "invalid_grant"}, {"active": True, "sub": "zoe"}))
def test_answers_about_a_login_are_read_or_told(status: int, body: bytes) -> None:
    with suppress(InvalidProviderResponse, ProviderError):
        parse_token_response(status, body)
    with suppress(InvalidProviderResponse):
        claims = parse_claims(status, body, "it")
        for name in ("sub", "email", "active"):
            person = read_person(claims, name, needs_verified_email=True)
            assert person.username
            assert "\n" not in person.username + person.name
        check_active(claims)


@given(bent_bytes(b"code=c&state=s&iss=https%3A%2F%2Flogin.example.org", b"error=access_denied&state=s"))
def test_returned_callback_is_parsed_or_refused(query: bytes) -> None:
    with suppress(InvalidProviderResponse, AccessDenied):
        assert read_callback(parse_query(query, CALLBACK_PARAMETERS), SERVER)


@given(statuses, st.sampled_from(["", '"', "}", "\\", "\0", "\ud800"]))
def test_invalid_answer_report_never_repeats_tokens(status: int, behind: str) -> None:
    body = f'{{"access_token": "{SECRET}", "error": "{SECRET}", "token_type": "mac"{behind}}}'.encode(
        "utf-8", "replace"
    )
    with pytest.raises((InvalidProviderResponse, ProviderError)) as told:
        parse_token_response(status, body)

    assert SECRET not in str(told.value)


# Keys and ID tokens

PUBLISHED = [dict(make_key(kind).as_dict(private=False)) for kind in ("RSA", "ES256", "EdDSA")]
MEMBERS = sorted({member for key in PUBLISHED for member in key} | {"d", "x5c", "key_ops", "oth"})


@given(
    st.sampled_from(PUBLISHED),
    st.dictionaries(st.sampled_from(MEMBERS), st.one_of(json_values, bent_text("AQAB", "P-256", "A" * 43)), max_size=2),
    st.lists(json_values, max_size=2),
)
def test_a_key_set_is_used_as_far_as_it_can_be_read(
    key: dict[str, Any], changed: dict[str, Any], others: list[Any]
) -> None:
    with suppress(InvalidProviderResponse):
        parse_keys({"keys": [*others, key | changed]})
    assert parse_keys({"keys": [key | changed, *others, PUBLISHED[0]]})


@given(bodies({"alg": "RS256", "kid": "RSA"}, {"alg": "none", "crit": ["b64"], "b64": False}), bodies(CLAIMS))
def test_an_id_token_of_any_header_and_payload_is_refused_in_words(header: bytes, payload: bytes) -> None:
    with suppress(InvalidProviderResponse, UnknownKey):
        verify_id_token(sign_raw(header, payload), KEYS, EXPECTED)
