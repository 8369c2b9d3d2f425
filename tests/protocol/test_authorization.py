"""The rules of an authorization request without HTTP: parsing, redirect URIs, and the address of the response."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote_plus, urlencode, urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.protocol.authorization import (
    AUTHORIZATION_PARAMETERS,
    AuthorizationRefused,
    AuthorizationRequest,
    ReturnAddress,
    is_registered,
    list_open_realms,
    make_consent_request,
    make_location,
    parse_authorization_request,
    parse_query,
    read_client_id,
    recheck_registration,
    redirecting_oauth_errors_to,
    require_registered,
    verify_return_address,
)
from service.protocol.client import Client
from service.protocol.errors import AccessDenied, InvalidRequest, InvalidScope, OAuthError

CALLBACK = "https://shop.example/callback"
ISSUER = "https://id.example"
CLIENT = Client(
    client_id="shop",
    redirect_uris=(CALLBACK,),
    grant_types=("authorization_code",),
    scope="realm:main realm:cep role:enduser role:partner",
    default_scope="role:enduser",
)
REQUEST = AuthorizationRequest(
    client_id="shop",
    return_address=ReturnAddress(CALLBACK, "x"),
    scope="role:enduser role:partner",
    code_challenge=None,
)

names = st.sampled_from(sorted(AUTHORIZATION_PARAMETERS))
texts = st.text(st.characters(codec="utf-8"))
pieces = st.sampled_from([b"&", b"=", b"%", b"+", b"%2", b"%ff", b"%00", b"%ed%a0%80", b"state", b"client_id", b"\xff"])


def ask(**changes: str) -> str:
    query = {"response_type": "code", "client_id": "shop", "redirect_uri": CALLBACK} | changes
    return urlencode(query)


def judge(text: str, client: Client | None = CLIENT) -> AuthorizationRequest:
    """Judge a request with the steps of the endpoint, in its order."""
    query = parse_query(text.encode())
    read_client_id(query)
    client = require_registered(client)
    return_address = verify_return_address(query, client)
    with redirecting_oauth_errors_to(return_address):
        return parse_authorization_request(query, client, return_address, "")


# The query


@pytest.mark.fuzzes("authorization.parse_query")
@given(st.lists(st.one_of(pieces, st.binary(max_size=4))).map(b"".join))
def test_whatever_stands_in_the_query_it_is_read_or_refused(text: bytes) -> None:
    try:
        query = parse_query(text)
    except InvalidRequest:
        return

    assert query.values.keys() <= AUTHORIZATION_PARAMETERS
    assert all(query.values.values())


@pytest.mark.fuzzes("authorization.parse_authorization_request")
@given(st.lists(st.one_of(pieces, st.binary(max_size=4))).map(b"".join))
def test_whatever_stands_in_the_query_is_an_oauth_error_at_most(text: bytes) -> None:
    try:
        query = parse_query(b"response_type=code&" + text)
        read_client_id(query)
        with redirecting_oauth_errors_to(verify_return_address(query, CLIENT)):
            parse_authorization_request(query, CLIENT, ReturnAddress(CALLBACK, None), "")
    except (AuthorizationRefused, OAuthError):
        pass


@given(st.dictionaries(names, texts.filter(bool)))
def test_what_was_encoded_is_read_as_it_was(values: dict[str, str]) -> None:
    query = parse_query(urlencode(values).encode())

    assert (query.values, set(query.repeated), set(query.malformed)) == (values, set(), set())


@given(names, texts, texts)
def test_a_name_that_stands_twice_is_repeated_whatever_its_values(name: str, one: str, other: str) -> None:
    query = parse_query(f"{name}={quote_plus(one)}&x=y&{name}={quote_plus(other)}".encode())

    assert set(query.repeated) == {name}


@pytest.mark.parametrize("value", [b"%", b"%2", b"%zz", b"%ff", b"%c3", b"%ed%a0%80", b"\xc3\xa9", b"%C3%28"])
def test_a_value_that_is_no_utf_8_is_malformed(value: bytes) -> None:
    query = parse_query(b"state=" + value)

    assert (set(query.malformed), "state" in query.values) == ({"state"}, False)


def test_an_encoded_name_is_the_same_name() -> None:
    query = parse_query(b"%73tate=a&state=b&+state=c&State=d")

    assert (set(query.repeated), query.values["state"]) == ({"state"}, "b")


# The client and its redirect URI


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "parameter_missing"),
        ("client_id=", "parameter_missing"),
        ("client_id=a&client_id=a", "parameter_repeated"),
        ("client_id=%ff", "parameter_malformed"),
        ("client_id=a%0d%0a", "client_unregistered"),
        ("client_id=" + "x" * 256, "client_unregistered"),
    ],
)
def test_a_client_id_that_cannot_be_one_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_client_id(parse_query(text.encode()))

    assert refused.value.reason == reason


@given(st.text(max_size=30), st.text(max_size=30))
def test_only_the_registered_address_is_the_clients(before: str, after: str) -> None:
    presented = before + CALLBACK + after

    assert is_registered(CLIENT, presented) == (presented == CALLBACK)


@given(st.integers(0, 65_535))
def test_any_port_of_a_loopback_address_is_the_clients_where_it_has_no_secret(port: int) -> None:
    public = msgspec.structs.replace(
        CLIENT, redirect_uris=("http://127.0.0.1/a", "http://[::1]:1/a", "http://localhost/a")
    )
    secretive = msgspec.structs.replace(public, client_secret_hash="sha256:x")

    for host, may_differ in (("127.0.0.1", True), ("[::1]", True), ("localhost", False), ("127.0.0.2", False)):
        requested = f"http://{host}:{port}/a"
        assert is_registered(public, requested) == may_differ
        assert is_registered(secretive, requested) == (requested in secretive.redirect_uris)


@pytest.mark.parametrize("port", ["", "+1", "-1", " 1", "1 ", "١", "1/", "1\n", "123456", "1@x", "1:2"])  # noqa: RUF001
def test_what_is_no_port_is_none(port: str) -> None:
    public = msgspec.structs.replace(CLIENT, redirect_uris=("http://127.0.0.1/a",))

    assert not is_registered(public, f"http://127.0.0.1:{port}/a")


@pytest.mark.parametrize(
    ("text", "client", "reason"),
    [
        ("", None, "client_unregistered"),
        ("", CLIENT, "parameter_missing"),
        ("redirect_uri=x&redirect_uri=x", CLIENT, "parameter_repeated"),
        ("redirect_uri=%ff", CLIENT, "parameter_malformed"),
        ("redirect_uri=x", CLIENT, "redirect_uri_unregistered"),
    ],
)
def test_without_a_right_address_there_is_none_to_answer_to(text: str, client: Client | None, reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        verify_return_address(parse_query(text.encode()), require_registered(client))

    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("text", "state"),
    [("state=x", "x"), ("", None), ("state=", None), ("state=a&state=b", None), ("state=%ff", None)],
)
def test_a_state_comes_along_where_there_is_exactly_one(text: str, state: str | None) -> None:
    address = verify_return_address(parse_query(f"{ask()}&{text}".encode()), CLIENT)

    assert address == ReturnAddress(CALLBACK, state)


# The rest of the request


def test_a_request_without_a_mistake_is_what_was_asked_for() -> None:
    requested = judge(ask(scope="role:partner realm:main role:enduser", state="x"))

    assert requested == AuthorizationRequest(
        client_id="shop",
        return_address=ReturnAddress(CALLBACK, "x"),
        scope="realm:main role:enduser role:partner",
        code_challenge=None,
    )
    assert judge(ask()).scope == "role:enduser"
    challenge = "x" * 43
    assert judge(ask(code_challenge=challenge, code_challenge_method="S256")).code_challenge == challenge


@pytest.mark.parametrize(
    ("changes", "error", "reason"),
    [
        ({"response_type": ""}, "invalid_request", "parameter_missing"),
        ({"response_type": "token"}, "unsupported_response_type", "response_type_unknown"),
        ({"state": "é" * 4097}, "invalid_request", "state_too_long"),
        ({"scope": "role:admin"}, "invalid_scope", "scope_beyond_client"),
        ({"scope": "realm:main"}, "invalid_scope", "scope_without_role"),
        ({"scope": "realm:main realm:cep role:enduser"}, "invalid_scope", "scope_of_two_realms"),
        ({"scope": "role:x"}, "invalid_scope", "scope_item_unknown"),
        ({"code_challenge": "x" * 43}, "invalid_request", "code_challenge_method_unsupported"),
        ({"code_challenge_method": "S256"}, "invalid_request", "code_challenge_malformed"),
    ],
)
def test_a_mistake_is_told_to_the_address_of_the_client(changes: dict[str, str], error: str, reason: str) -> None:
    with pytest.raises(AuthorizationRefused) as refused:
        judge(ask(**changes))

    assert refused.value.return_address.redirect_uri == CALLBACK
    assert (refused.value.error.error, refused.value.error.reason) == (error, reason)


# Realm and roles


@pytest.mark.parametrize(
    ("scope", "realms", "found"),
    [
        ("role:enduser", ["main", "cep"], ["main", "cep"]),
        ("role:enduser", ["main"], ["main"]),
        ("realm:cep role:enduser", ["main", "cep"], ["cep"]),
        ("realm:cep role:enduser", ["main"], None),
        ("role:enduser", [], None),
    ],
)
def test_open_are_the_realms_that_the_request_and_the_client_leave(
    scope: str, realms: list[str], found: list[str] | None
) -> None:
    request = msgspec.structs.replace(REQUEST, scope=scope)
    if found is not None:
        assert list_open_realms(request, CLIENT, realms) == found
        return
    with pytest.raises(InvalidScope) as refused:
        list_open_realms(request, CLIENT, realms)

    assert refused.value.reason == "realm_without_login"


def test_asked_for_is_the_users_share_of_the_roles_in_the_realm_of_the_login() -> None:
    assert make_consent_request(REQUEST, "cep", ["partner", "admin"]).scope == "realm:cep role:partner"
    assert make_consent_request(REQUEST, "main", ["partner", "enduser"]).scope == "realm:main role:enduser role:partner"
    with pytest.raises(AccessDenied) as refused:
        make_consent_request(REQUEST, "main", ["admin"])

    assert refused.value.reason == "user_without_role"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"grant_types": ()}, "unauthorized_client"),
        ({"scope": "realm:main role:partner"}, "invalid_scope"),
        ({"scope": "realm:cep role:enduser"}, "invalid_scope"),
    ],
)
def test_what_the_client_has_lost_is_told_to_it(changes: dict[str, object], error: str) -> None:
    client = msgspec.structs.replace(CLIENT, **changes)
    with pytest.raises(AuthorizationRefused) as refused:
        recheck_registration(REQUEST, "realm:main role:enduser", client)

    assert refused.value.error.error == error
    assert recheck_registration(REQUEST, "realm:main role:enduser", CLIENT) == CLIENT


@pytest.mark.parametrize("client", [None, msgspec.structs.replace(CLIENT, redirect_uris=())])
def test_a_client_or_address_that_is_gone_is_told_nothing(client: Client | None) -> None:
    with pytest.raises(InvalidRequest):
        recheck_registration(REQUEST, "realm:main role:enduser", client)


# The address of the response


@given(texts, st.sampled_from([CALLBACK, CALLBACK + "?keep=this", "com.example.app:/x", "http://[::1]:1"]))
def test_any_state_comes_back_as_it_was(state: str, redirect_uri: str) -> None:
    location = make_location(ReturnAddress(redirect_uri, state), ISSUER, {"code": "c"})
    pairs = parse_qsl(urlsplit(location).query, keep_blank_values=True, strict_parsing=True, errors="strict")

    assert location.startswith(redirect_uri)
    assert location.isascii()
    assert location.isprintable()
    assert " " not in location
    assert pairs[-3:] == [("code", "c"), ("state", state), ("iss", ISSUER)]
    assert len(pairs) == 3 + redirect_uri.count("?")


def test_without_a_state_the_address_has_none() -> None:
    location = make_location(ReturnAddress(CALLBACK, None), ISSUER, {"error": "access_denied"})

    assert location == f"{CALLBACK}?error=access_denied&iss=https%3A%2F%2Fid.example"
