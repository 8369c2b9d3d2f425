"""Parsing of a bearer in the Authorization header, and the check of a required scope."""

from __future__ import annotations

import pytest

from service.protocol.bearer import (
    AccessGrant,
    check_scope,
    parse_bearer,
)
from service.protocol.errors import BearerMissing, InsufficientScope, InvalidToken, MalformedBearer

GRANT = AccessGrant(
    issued_at_ms=0,
    expires_at_ms=600_000,
    family_digest="f" * 22,
    client_id="phone-app",
    subject="s" * 22,
    username="alice@example.com",
    scope="realm:main role:enduser role:partner",
)


@pytest.mark.clause("6750-2.1-authorization-header", "decided-client-scheme-any-case")
@pytest.mark.parametrize("header", ["Bearer abc-._~+/09==", "bearer abc-._~+/09==", "BEARER  abc-._~+/09== "])
def test_the_token_behind_the_scheme_is_read(header: str) -> None:
    assert parse_bearer([header]) == "abc-._~+/09=="


@pytest.mark.clause("6750-3.1-no-error-without-credentials")
@pytest.mark.parametrize("headers", [[], [""], ["Bearer"], ["Bearer "], ["Basic YTpi"], ["Bearerabc"]])
def test_no_bearer_is_missing_and_not_wrong(headers: list[str]) -> None:
    with pytest.raises(BearerMissing):
        parse_bearer(headers)


@pytest.mark.clause("6750-2.1-syntax")
@pytest.mark.parametrize("token", ["a b", "a,b", '"a"', "é", "a=b", "=", "a\x00", "a\tb"], ids=ascii)
def test_what_is_not_token_text_is_an_invalid_token(token: str) -> None:
    with pytest.raises(InvalidToken):
        parse_bearer([f"Bearer {token}"])


def test_two_headers_are_a_malformed_request() -> None:
    with pytest.raises(MalformedBearer) as caught:
        parse_bearer(["Bearer a", "Bearer a"])

    assert (caught.value.status, caught.value.error) == (400, "invalid_request")


@pytest.mark.clause("decided-verify-scope", "6750-3.1-insufficient-scope-403")
@pytest.mark.parametrize("scope", ["", "realm:main", "role:partner realm:main", "role:enduser role:enduser"])
def test_a_token_passes_where_it_has_every_item(scope: str) -> None:
    check_scope(GRANT, scope)


@pytest.mark.clause("decided-verify-scope", "6750-3-characters")
@pytest.mark.parametrize(
    "scope",
    [" ", " role:enduser", "role:enduser ", "role:enduser  realm:main", 'a"', "a\\", "a\tb", "é", "a\r\nb", "a\n"],
    ids=ascii,
)
def test_a_malformed_scope_is_refused_and_not_repeated(scope: str) -> None:
    with pytest.raises(InsufficientScope) as caught:
        check_scope(GRANT, scope)

    assert caught.value.reason == "needed_scope_malformed"
    assert "scope=" not in caught.value.challenge
