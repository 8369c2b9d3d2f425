"""A bearer in the Authorization header, as text."""

from __future__ import annotations

import pytest

from service.protocol.bearer import parse_bearer
from service.protocol.errors import BearerMissing, InvalidToken, MalformedBearer


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


@pytest.mark.clause("6750-3-scheme-bearer", "6750-3-error-attribute", "6750-3-attributes-once")
def test_the_challenge_carries_the_error_and_its_description_once() -> None:
    error = InvalidToken("access_token_unknown")

    assert error.challenge == (
        'Bearer realm="token-service", error="invalid_token", '
        'error_description="The access token is unknown, expired or revoked."'
    )
    assert BearerMissing.challenge == 'Bearer realm="token-service"'
