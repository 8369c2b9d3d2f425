"""The token response as a value."""

from __future__ import annotations

import json

import msgspec
import pytest

from service.protocol.token_response import NO_STORE_HEADERS, TokenResponse


@pytest.mark.clause("spec-2.1-all-fields", "spec-2.1-token-type-bearer", "spec-2.1-expires-in-integer")
def test_all_five_fields_are_always_there() -> None:
    response = TokenResponse(access_token="a", expires_in=0, refresh_token="r", scope="realm:main role:enduser")

    assert json.loads(msgspec.json.encode(response)) == {
        "access_token": "a",
        "token_type": "Bearer",
        "expires_in": 0,
        "refresh_token": "r",
        "scope": "realm:main role:enduser",
    }


@pytest.mark.clause("spec-2.1-cache-headers")
def test_the_cache_headers_are_those_of_the_specification() -> None:
    assert NO_STORE_HEADERS == {"Cache-Control": "no-store, no-cache", "Pragma": "no-cache"}
