"""What of an organisation's metadata is used: no address below the one that it was asked at."""

from __future__ import annotations

import json

import pytest

from service.protocol.organisation import Misanswer, parse_metadata


@pytest.mark.clause("decided-external-answer-checked")
@pytest.mark.parametrize("issuer", ["https://login.example", "HTTPS://login.example"])
@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "userinfo_endpoint", "jwks_uri"])
def test_metadata_that_came_over_tls_lead_to_no_plain_address(issuer: str, name: str) -> None:
    """This machine's own least of all, where plain http is allowed to an issuer of this machine."""
    body = json.dumps({"issuer": issuer, name: "http://127.0.0.1:6379/"}).encode()
    with pytest.raises(Misanswer, match=name):
        parse_metadata(body, issuer)


@pytest.mark.parametrize("address", ["https://[", "https://login.example:port/", "login.example", "https:"])
def test_metadata_with_an_address_that_is_none(address: str) -> None:
    body = json.dumps({"issuer": "https://login.example", "token_endpoint": address}).encode()
    with pytest.raises(Misanswer, match="token_endpoint"):
        parse_metadata(body, "https://login.example")
