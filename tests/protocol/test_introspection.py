"""The JSON of an introspection response."""

from __future__ import annotations

import msgspec
import pytest

from service.protocol.bearer import AccessGrant
from service.protocol.client import Client, check_introspection
from service.protocol.errors import IntrospectionRefused
from service.protocol.introspection import INACTIVE, Introspection, TokenUse
from service.web.api.introspect import describe_token


def describe(token_use: TokenUse) -> Introspection:
    grant = AccessGrant(
        scope="realm:cep role:enduser",
        client_id="phone-app",
        username="zoë",
        subject="s" * 22,
        family_digest="f" * 22,
        issued_at_ms=1_000_999,
        expires_at_ms=1_600_999,
    )
    return describe_token(token_use, grant, grant.issued_at_ms, grant.expires_at_ms, "https://example.org")


@pytest.mark.clause("7662-2.2-inactive", "decided-introspection-inactive")
def test_of_a_token_that_is_not_live_nothing_but_that_is_said() -> None:
    assert msgspec.json.encode(INACTIVE) == b'{"active":false}'


@pytest.mark.clause("7662-2.2-members", "decided-introspection-members")
def test_times_are_whole_seconds_rounded_down() -> None:
    """A cached response must not outlive the token."""
    description = describe("access_token")

    assert (description.iat, description.exp) == (1_000, 1_600)


@pytest.mark.clause("decided-introspection-members")
def test_only_an_access_token_has_a_type() -> None:
    access_token = msgspec.to_builtins(describe("access_token"))
    refresh_token = msgspec.to_builtins(describe("refresh_token"))

    assert access_token.pop("token_type") == "Bearer"
    assert (access_token.pop("token_use"), refresh_token.pop("token_use")) == ("access_token", "refresh_token")
    assert access_token == refresh_token
    assert (access_token["realm"], access_token["active"]) == ("cep", True)


@pytest.mark.clause("decided-introspection-right")
@pytest.mark.parametrize(
    "client",
    [
        Client(client_id="a", client_secret_hash="x"),
        Client(client_id="a", introspect=True),
        Client(client_id="a", introspect="all"),
    ],
)
def test_the_right_needs_a_registration_and_a_secret(client: Client) -> None:
    with pytest.raises(IntrospectionRefused):
        check_introspection(client)


@pytest.mark.parametrize("right", [True, "all"])
def test_a_client_with_both_may_introspect(right: bool) -> None:
    check_introspection(Client(client_id="a", client_secret_hash="x", introspect=right))
