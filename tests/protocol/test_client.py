"""A client's registration: what it may ask for, and which sessions outlive a change of it."""

from __future__ import annotations

import msgspec
import pytest

from service.protocol.client import Client, check_grant_type, check_scope, may_keep_session, narrows
from service.protocol.errors import InvalidScope, UnauthorizedClient
from service.protocol.scope import parse_scope

SHOP = Client(
    client_id="shop",
    grant_types=("password", "refresh_token"),
    scope="realm:main role:enduser role:partner",
)


@pytest.mark.clause("6749-2.1-client-type-is-registered", "spec-2.3-client-record")
def test_a_client_is_public_exactly_without_a_secret() -> None:
    assert SHOP.is_public
    assert not msgspec.structs.replace(SHOP, client_secret_hash="sha256:x").is_public


@pytest.mark.clause("6749-5.2-unauthorized-client", "6749-10.7-password-grant-rare")
def test_a_grant_needs_its_registration() -> None:
    check_grant_type(SHOP, "password")
    with pytest.raises(UnauthorizedClient):
        check_grant_type(SHOP, "authorization_code")


@pytest.mark.clause("6749-10.3-client-limits-scope", "decided-client-scope")
def test_a_scope_needs_its_registration() -> None:
    check_scope(SHOP, parse_scope("role:partner realm:main"))
    for text in ("realm:cep role:enduser", "realm:main role:admin"):
        with pytest.raises(InvalidScope, match="scope_beyond_client"):
            check_scope(SHOP, parse_scope(text))


def test_a_client_without_a_scope_may_ask_for_nothing() -> None:
    with pytest.raises(InvalidScope):
        check_scope(Client(client_id="gateway"), parse_scope("realm:main"))


@pytest.mark.parametrize(
    ("client", "grant_type", "scope", "kept"),
    [
        pytest.param(SHOP, "password", "realm:main role:enduser", True, id="nothing it rests on is gone"),
        pytest.param(None, "password", "realm:main role:enduser", False, id="no client"),
        pytest.param(SHOP, "authorization_code", "realm:main role:enduser", False, id="no longer its grant"),
        pytest.param(SHOP, "password", "realm:main role:admin", False, id="no longer its scope"),
        pytest.param(
            msgspec.structs.replace(SHOP, grant_types=("password",)),
            "password",
            "realm:main role:enduser",
            False,
            id="no longer the right to refresh",
        ),
    ],
)
def test_a_session_rests_on_client_grant_and_scope(
    client: Client | None, grant_type: str, scope: str, kept: bool
) -> None:
    assert may_keep_session(client, grant_type, parse_scope(scope)) is kept


@pytest.mark.parametrize(
    ("grant_types", "scope", "is_narrower"),
    [
        pytest.param(SHOP.grant_types, SHOP.scope, False, id="the same"),
        pytest.param((*SHOP.grant_types, "authorization_code"), f"{SHOP.scope} role:admin", False, id="more of both"),
        pytest.param(("password",), SHOP.scope, True, id="a grant less"),
        pytest.param(SHOP.grant_types, "realm:main role:enduser", True, id="a role less"),
        pytest.param(SHOP.grant_types, "realm:main role:enduser role:admin", True, id="one role for another"),
    ],
)
def test_a_change_narrows_where_it_takes_something_away(
    grant_types: tuple[str, ...], scope: str, is_narrower: bool
) -> None:
    changed = msgspec.structs.replace(SHOP, grant_types=grant_types, scope=scope)

    assert narrows(SHOP, changed) is is_narrower
