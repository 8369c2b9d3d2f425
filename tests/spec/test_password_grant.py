"""The password grant over HTTP."""

from __future__ import annotations

import httpx2
import pytest

from tests.cast import ALICE, PHONE_APP, tokens_of


@pytest.mark.clause("6749-4.3.3-token-response", "spec-4.2-password-grant")
async def test_a_user_gets_tokens_for_the_right_password(http: httpx2.AsyncClient) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))

    assert tokens["scope"] == "realm:main role:enduser"
