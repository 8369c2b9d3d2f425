"""The rules of an authorization request without HTTP: parsing, redirect URIs, and the address of the response."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.protocol.authorization import (
    AUTHORIZATION_PARAMETERS,
    AuthorizationRefused,
    ReturnAddress,
    is_registered,
    parse_authorization_request,
    parse_query,
    read_client_id,
    read_max_login_age_ms,
    redirecting_oauth_errors_to,
    verify_return_address,
)
from service.protocol.client import Client
from service.protocol.errors import OAuthError

CALLBACK = "https://shop.example/callback"
ISSUER = "https://id.example"
CLIENT = Client(
    client_id="shop",
    redirect_uris=(CALLBACK,),
    grant_types=("authorization_code",),
    scope="realm:main realm:cep role:enduser role:partner",
    default_scope="role:enduser",
)

names = st.sampled_from(sorted(AUTHORIZATION_PARAMETERS))
texts = st.text(st.characters(codec="utf-8"))
pieces = st.sampled_from([b"&", b"=", b"%", b"+", b"%2", b"%ff", b"%00", b"%ed%a0%80", b"state", b"client_id", b"\xff"])


# The query


@given(st.lists(st.one_of(pieces, st.binary(max_size=4))).map(b"".join))
def test_any_query_is_an_oauth_error_at_most(text: bytes) -> None:
    try:
        query = parse_query(b"response_type=code&" + text)
        read_client_id(query)
        with redirecting_oauth_errors_to(verify_return_address(query, CLIENT)):
            parse_authorization_request(query, CLIENT, ReturnAddress(CALLBACK, None), "")
            read_max_login_age_ms(query)
    except (AuthorizationRefused, OAuthError):
        pass


@pytest.mark.parametrize("value", [b"%", b"%2", b"%zz", b"%ff", b"%c3", b"%ed%a0%80", b"\xc3\xa9", b"%C3%28"])
def test_value_outside_utf_8_is_malformed(value: bytes) -> None:
    query = parse_query(b"state=" + value)

    assert query == ({}, {"state": "parameter_malformed"})


def test_an_encoded_name_is_the_same_name() -> None:
    query = parse_query(b"%73tate=a&state=b&+state=c&State=d")

    assert query.mistakes == {"state": "parameter_repeated"}


# The client and its redirect URI


@given(st.text(max_size=30), st.text(max_size=30))
def test_only_the_registered_address_is_the_clients(before: str, after: str) -> None:
    presented = before + CALLBACK + after

    assert is_registered(CLIENT, presented) == (presented == CALLBACK)


@pytest.mark.parametrize("port", ["", "+1", "-1", " 1", "1 ", "١", "1/", "1\n", "123456", "1@x", "1:2"])  # noqa: RUF001
def test_malformed_port_is_refused(port: str) -> None:
    public = msgspec.structs.replace(CLIENT, redirect_uris=("http://127.0.0.1/a",))

    assert not is_registered(public, f"http://127.0.0.1:{port}/a")
