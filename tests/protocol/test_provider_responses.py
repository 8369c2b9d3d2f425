"""Parsing and validation of a provider's responses."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from service.protocol.authorization import parse_query
from service.protocol.provider import IdentityProvider, ProviderEndpoints, list_metadata_addresses
from service.protocol.provider_responses import (
    CALLBACK_PARAMETERS,
    InvalidProviderResponse,
    ProviderError,
    check_active,
    get_endpoints,
    parse_json,
    parse_metadata,
    parse_token_response,
    read_callback,
    read_person,
)
from service.protocol.user import MAX_NAME_CHARACTERS

ISSUER = "https://login.example.org"
OPENID = "/.well-known/openid-configuration"
OAUTH = "/.well-known/oauth-authorization-server"
ADDRESSES = ("authorization_endpoint", "token_endpoint", "introspection_endpoint", "userinfo_endpoint", "jwks_uri")
DOCUMENT: Mapping[str, Any] = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "introspection_endpoint": f"{ISSUER}/introspect",
    "userinfo_endpoint": f"{ISSUER}/userinfo",
    "jwks_uri": f"{ISSUER}/keys",
}
SERVER = ProviderEndpoints(
    issuer=ISSUER,
    authorization_endpoint=f"{ISSUER}/authorize",
    token_endpoint=f"{ISSUER}/token",
    userinfo_endpoint=f"{ISSUER}/userinfo",
)
NAMING_ITSELF = msgspec.structs.replace(SERVER, names_itself=True)


def read_document(issuer: str = ISSUER, /, **changes: object) -> ProviderEndpoints:
    """Parse a metadata document with these changes. None leaves a member out."""
    document = {name: value for name, value in {**DOCUMENT, "issuer": issuer, **changes}.items() if value is not None}
    return parse_metadata(json.dumps(document).encode(), issuer)


# Discovery


@pytest.mark.parametrize(
    ("issuer", "openid", "oauth"),
    [
        pytest.param("https://o.example", "https://o.example" + OPENID, "https://o.example" + OAUTH, id="no path"),
        pytest.param(
            "https://o.example/x/",
            "https://o.example/x" + OPENID,
            "https://o.example" + OAUTH + "/x",
            id="a path with a slash",
        ),
    ],
)
def test_metadata_path_is_appended_or_inserted(issuer: str, openid: str, oauth: str) -> None:
    assert list_metadata_addresses(issuer, openid=True) == (openid, oauth)
    assert list_metadata_addresses(issuer, openid=False) == (oauth, openid)


# Metadata


@pytest.mark.clause("8414-3.3-issuer-checked")
@pytest.mark.parametrize(
    "issuer", [ISSUER + "/", ISSUER.upper(), "http://login.example.org", "https://evil.example", "", None, 7, [ISSUER]]
)
def test_metadata_of_another_issuer_are_not_used(issuer: object) -> None:
    with pytest.raises(InvalidProviderResponse):
        parse_metadata(json.dumps({**DOCUMENT, "issuer": issuer}).encode(), ISSUER)


@pytest.mark.clause("decided-external-answer-checked")
@pytest.mark.parametrize("name", ADDRESSES)
@pytest.mark.parametrize(
    "address",
    [
        "http://login.example.org/x",
        "http://127.0.0.1/x",
        "/x",
        "https://user@login.example.org/x",
        "https://login.example.org\\@evil.example/x",
        "https://login.example.org/x\r\ny",
        "ftp://login.example.org/x",
        7,
    ],
    ids=ascii,
)
def test_unsafe_addresses_are_refused(name: str, address: object) -> None:
    with pytest.raises(InvalidProviderResponse) as refusal:
        read_document(**{name: address})

    assert "login.example.org" not in str(refusal.value)


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "[::1]"])
def test_without_tls_a_provider_on_this_machine_can_be_spoken_to(host: str) -> None:
    """The record already allows it, since its issuer has no TLS either."""
    metadata = read_document(f"http://{host}", **{name: f"http://{host}/x" for name in ADDRESSES if name != "jwks_uri"})

    assert metadata.token_endpoint == f"http://{host}/x"
    with pytest.raises(InvalidProviderResponse):
        read_document(f"http://{host}", token_endpoint="http://login.example.org/x")


# The record and the metadata


@pytest.mark.clause("decided-external-source")
@pytest.mark.parametrize("name", ["introspection_endpoint", "userinfo_endpoint", "jwks_uri"])
def test_source_in_the_record_replaces_the_metadata(name: str) -> None:
    provider = msgspec.structs.replace(IdentityProvider(client_id="us", issuer=ISSUER), **{name: "https://own.example"})

    server = get_endpoints(provider, read_document())

    sources = {source: getattr(server, source) for source in ADDRESSES[2:]}
    assert sources == dict.fromkeys(ADDRESSES[2:], "") | {name: "https://own.example"}


@pytest.mark.parametrize(
    ("given", "needs_metadata"),
    [
        ((), True),
        (("authorization_endpoint",), True),
        (("authorization_endpoint", "userinfo_endpoint"), True),
        (("token_endpoint", "userinfo_endpoint"), True),
        (("authorization_endpoint", "token_endpoint", "userinfo_endpoint"), False),
        (("authorization_endpoint", "token_endpoint", "jwks_uri"), False),
    ],
)
def test_metadata_is_needed_for_an_incomplete_record(given: tuple[str, ...], needs_metadata: bool) -> None:
    provider = IdentityProvider(client_id="us", issuer=ISSUER, **{name: DOCUMENT[name] for name in given})

    assert provider.needs_metadata == needs_metadata
    if not needs_metadata:
        assert get_endpoints(provider, None) == ProviderEndpoints(
            issuer=ISSUER, **{name: DOCUMENT[name] for name in given}
        )


@pytest.mark.parametrize("missing", ["authorization_endpoint", "token_endpoint"])
def test_metadata_without_a_needed_endpoint_is_invalid(missing: str) -> None:
    with pytest.raises(InvalidProviderResponse, match=missing):
        get_endpoints(IdentityProvider(client_id="us", issuer=ISSUER), read_document(**{missing: None}))


@pytest.mark.parametrize(
    ("methods", "secret_in_body"),
    [(None, False), (["client_secret_basic", "client_secret_post"], False), (["client_secret_post"], True)],
)
def test_secret_is_sent_in_the_body_only_without_basic(methods: list[str] | None, secret_in_body: bool) -> None:
    metadata = read_document(token_endpoint_auth_methods_supported=methods)

    assert get_endpoints(IdentityProvider(client_id="us", issuer=ISSUER), metadata).secret_in_body == secret_in_body


# The callback


def bring(query: str, server: ProviderEndpoints = SERVER) -> str:
    return read_callback(parse_query(query.encode(), CALLBACK_PARAMETERS), server)


ISS = "iss=https%3A%2F%2Flogin.example.org"


@pytest.mark.clause("decided-external-denial")
@pytest.mark.parametrize(
    "query",
    [
        "state=s",
        "code=a&code=a",
        f"code=a&{ISS}&{ISS}",
        "code=%FF",
        "code=a%0D%0Ab",
        "error=server_error",
        "error=Access_Denied",
        "error=access_denied&code=a",
        "error=%0Aforged+line",
    ],
)
def test_callback_without_code_or_refusal_is_an_invalid_answer(query: str) -> None:
    for whole in (query, f"{query}&{ISS}".removeprefix("&")):
        with pytest.raises(InvalidProviderResponse):
            bring(whole)


@pytest.mark.clause("9207-2.4-iss-checked")
@pytest.mark.parametrize(
    "issuer", ["https%3A%2F%2Fevil.example", "https%3A%2F%2Flogin.example.org%2F", "HTTPS%3A%2F%2Flogin.example.org"]
)
@pytest.mark.parametrize("said", ["code=abc", "error=access_denied"])
def test_peer_is_checked_before_its_headers(issuer: str, said: str) -> None:
    for server in (SERVER, NAMING_ITSELF):
        with pytest.raises(InvalidProviderResponse, match="another issuer"):
            bring(f"{said}&iss={issuer}", server)


@pytest.mark.clause("9207-2.4-iss-checked")
@pytest.mark.parametrize("said", ["code=abc", "error=access_denied", "code=abc&iss="])
def test_a_provider_that_always_names_itself_must_do_so(said: str) -> None:
    with pytest.raises(InvalidProviderResponse, match="lacks iss"):
        bring(said, NAMING_ITSELF)

    assert bring(f"code=abc&{ISS}", NAMING_ITSELF) == "abc"


def test_provider_without_issuer_compares_no_name() -> None:
    assert bring("code=abc&iss=whatever", msgspec.structs.replace(SERVER, issuer="")) == "abc"


# The token response

TOKENS: Mapping[str, Any] = {"access_token": "abc", "token_type": "Bearer"}


def answer(status: int, body: object) -> tuple[str, str | None]:
    tokens = parse_token_response(status, body if isinstance(body, bytes) else json.dumps(body).encode())
    return tokens.access_token, tokens.id_token


@pytest.mark.parametrize("token_type", ["Bearer", "bearer", "BEARER"])
def test_a_bearer_token_is_a_yes(token_type: str) -> None:
    extra: dict[str, object] = {"expires_in": "3600", "scope": None, "refresh_token": 7, "x": {}}

    assert answer(200, {**TOKENS, "token_type": token_type}) == ("abc", None)
    assert answer(200, {**TOKENS, "id_token": None}) == ("abc", None)
    assert answer(200, {**TOKENS, **extra, "id_token": "x.y.z"}) == ("abc", "x.y.z")


@pytest.mark.clause("decided-external-answer-checked")
@pytest.mark.parametrize(
    "changes",
    [{"access_token": None}, {"access_token": "a\r\nb"}, {"token_type": None}, {"token_type": "mac"}, {"id_token": 7}],
    ids=ascii,
)
def test_a_token_that_cannot_be_used_is_a_misanswer(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidProviderResponse):
        answer(200, {**TOKENS, **changes})


@pytest.mark.clause("decided-external-answer-checked")
@pytest.mark.parametrize("status", [201, 204, 302, 500])
@pytest.mark.parametrize("body", [TOKENS, {"error": "invalid_grant"}])
def test_other_statuses_are_outages(status: int, body: object) -> None:
    with pytest.raises(InvalidProviderResponse, match=f"its token response returned status {status}"):
        answer(status, body)


@pytest.mark.parametrize("status", [400, 401])
@pytest.mark.parametrize("error", ["invalid_grant", "mfa_required"])
def test_an_error_in_the_standards_form_is_a_refusal(status: int, error: str) -> None:
    with pytest.raises(ProviderError) as refusal:
        answer(status, {"error": error, "error_description": "a secret", "x": 1})

    assert refusal.value.error == error
    assert "a secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "error", ["", "Invalid_Grant", "invalid grant", "a secret!", "a" * 41, "invalid_grant\n", "\u00e4"]
)
def test_unknown_error_form_is_refused_without_an_echo(error: str) -> None:
    with pytest.raises(ProviderError) as refusal:
        answer(400, {"error": error})

    assert refusal.value.error == "(not a code)"


@pytest.mark.parametrize("body", [b"", b"no", b"[]", b"{}", b'{"error":null}', b'{"error":7}', b"\xff"], ids=repr)
def test_an_error_without_a_name_is_a_misanswer(body: bytes) -> None:
    with pytest.raises(InvalidProviderResponse, match="its response with status 400 is not JSON"):
        answer(400, body)


@pytest.mark.parametrize("body", [b"", b"slow down", {"error": "invalid_grant"}, TOKENS], ids=repr)
def test_provider_429_is_not_a_wrong_password(body: object) -> None:
    with pytest.raises(ProviderError) as refusal:
        answer(429, body)

    assert refusal.value.error == "too_many_requests"


# Identification of the user


@pytest.mark.clause("decided-external-username")
@pytest.mark.parametrize(
    ("claims", "claim", "username", "name"),
    [
        ({"sub": "zoe", "name": "Zo\u00eb"}, "sub", "zoe", "Zo\u00eb"),
        ({"sub": "Zoe "}, "sub", "Zoe ", ""),
        ({"sub": "zoe", "upn": "z@x"}, "upn", "z@x", ""),
        ({"sub": 248289761001}, "sub", "248289761001", ""),
        ({"sub": "x" * MAX_NAME_CHARACTERS}, "sub", "x" * MAX_NAME_CHARACTERS, ""),
        ({"sub": "zoe", "name": "a\nb"}, "sub", "zoe", ""),
        ({"sub": "zoe", "name": "x" * 256}, "sub", "zoe", ""),
        ({"sub": "zoe", "name": ["Zoe"]}, "sub", "zoe", ""),
        ({"email": "z@x", "email_verified": True}, "email", "z@x", ""),
        ({"email": "z@x", "email_verified": "true"}, "email", "z@x", ""),
        ({"sub": "zoe", "email": "z@x", "email_verified": False}, "sub", "zoe", ""),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_a_user_has_the_name_that_the_claim_gives(
    claims: dict[str, object], claim: str, username: str, name: str
) -> None:
    assert read_person(claims, claim, needs_verified_email=claim == "email")[:3] == (username, name, False)


@pytest.mark.clause("decided-external-username")
@pytest.mark.parametrize(
    "value",
    [
        None, "", True, False, 1.5, [], ["zoe"], {}, {"x": "zoe"}, "a\nb", "a\rb", "a\x00b", "a\x7fb", "\ud800",
        "\ufffe", "x" * 256, 10**300,
    ],
    ids=lambda value: ascii(value)[:12],
)  # fmt: skip
def test_claim_without_user_name_is_an_invalid_answer(value: object) -> None:
    with pytest.raises(
        InvalidProviderResponse, match="the claim sub is missing, or is not 1 to 255 characters in one line"
    ):
        read_person({"sub": value, "name": "Zoe"}, "sub", needs_verified_email=False)
    with pytest.raises(InvalidProviderResponse):
        read_person({"name": "Zoe"}, "sub", needs_verified_email=False)


@pytest.mark.clause("decided-external-username")
@pytest.mark.parametrize("verified", [{}, *({"email_verified": value} for value in (False, None, "false", "True", 1))])
def test_unverified_email_is_marked(verified: dict[str, object]) -> None:
    claims = {"email": "z@x", **verified}

    assert read_person(claims, "email", needs_verified_email=True)[:3] == ("z@x", "", True)
    assert read_person(claims, "email", needs_verified_email=False)[:3] == ("z@x", "", False)


# Other responses


@pytest.mark.clause("7662-2.2-active-believed")
@pytest.mark.parametrize("active", [False, None, "true", 1, {}, []])
def test_only_true_is_active(active: object) -> None:
    check_active({"active": True})
    for claims in ({"active": active, "sub": "zoe"}, {"sub": "zoe"}):
        with pytest.raises(InvalidProviderResponse):
            check_active(claims)


def test_malformed_json_is_named_and_not_quoted() -> None:
    for body in (b"a secret", b'"a secret"', b"[" * 100_000, b"\xff"):
        with pytest.raises(InvalidProviderResponse) as caught:
            parse_json(body, dict[str, Any], "its key set")
        assert str(caught.value) == "its key set is not JSON of the expected format"
