"""A client's registration: what the client may request, and which sessions outlive a change of it."""

import msgspec
import pytest

from service.protocol.client import Client, Narrowing, find_narrowing, may_keep_session
from service.protocol.scope import parse_scope

SHOP = Client(client_id="shop", grant_types=("password", "refresh_token"), scope="realm:main role:enduser role:partner")


@pytest.mark.clause("decided-secret-overlap", "6819-5.2.3.6-secret-revoked")
@pytest.mark.parametrize(
    ("now_ms", "accepted"),
    [
        pytest.param(999, ("new", "old"), id="in the last millisecond"),
        pytest.param(1000, ("new",), id="at the time itself"),
    ],
)
def test_previous_secret_is_valid_until_its_expiry(now_ms: int, accepted: tuple[str, ...]) -> None:
    rotated = msgspec.structs.replace(
        SHOP, client_secret_hash="new", previous_secret_hash="old", previous_secret_until_ms=1000
    )

    assert rotated.accepted_secret_hashes(now_ms) == accepted


WITHOUT_REFRESH = msgspec.structs.replace(SHOP, grant_types=("password",))


@pytest.mark.clause("decided-seed-ends-sessions")
@pytest.mark.parametrize(
    ("client", "narrowing", "grant_type", "scope", "kept"),
    [
        pytest.param(SHOP, "grant_or_scope", "password", "realm:main role:enduser", True, id="all it rests on is left"),
        pytest.param(None, "grant_or_scope", "password", "realm:main role:enduser", False, id="no client"),
        pytest.param(SHOP, "grant_or_scope", "authorization_code", "realm:main", False, id="no longer its grant"),
        pytest.param(SHOP, "grant_or_scope", "password", "realm:main role:admin", False, id="no longer its scope"),
        pytest.param(SHOP, "refresh", "password", "realm:main role:enduser", False, id="the right to refresh was lost"),
        pytest.param(
            WITHOUT_REFRESH, "grant_or_scope", "password", "realm:main role:enduser", True, id="it never could refresh"
        ),
        pytest.param(
            WITHOUT_REFRESH, "refresh", "password", "realm:main role:enduser", False, id="it could refresh before"
        ),
    ],
)
def test_a_session_rests_on_client_grant_and_scope(
    client: Client | None, narrowing: Narrowing, grant_type: str, scope: str, kept: bool
) -> None:
    assert may_keep_session(client, narrowing, grant_type, parse_scope(scope)) is kept


@pytest.mark.clause("decided-seed-ends-sessions")
@pytest.mark.parametrize(
    ("old", "grant_types", "scope", "narrowing"),
    [
        pytest.param(SHOP, SHOP.grant_types, SHOP.scope, None, id="the same"),
        pytest.param(
            SHOP, (*SHOP.grant_types, "authorization_code"), f"{SHOP.scope} role:admin", None, id="more of both"
        ),
        pytest.param(SHOP, ("refresh_token",), SHOP.scope, "grant_or_scope", id="a grant less"),
        pytest.param(SHOP, SHOP.grant_types, "realm:main role:enduser", "grant_or_scope", id="a role less"),
        pytest.param(
            SHOP, SHOP.grant_types, "realm:main role:enduser role:admin", "grant_or_scope", id="one role for another"
        ),
        pytest.param(SHOP, ("password",), SHOP.scope, "refresh", id="the right to refresh"),
        pytest.param(SHOP, (), "", "refresh", id="everything: the right to refresh covers the rest"),
        pytest.param(WITHOUT_REFRESH, SHOP.grant_types, SHOP.scope, None, id="a right to refresh that is new"),
        pytest.param(
            WITHOUT_REFRESH, ("password",), "realm:main", "grant_or_scope", id="it never could refresh: only its roles"
        ),
    ],
)
def test_removed_scope_or_grant_is_a_loss(
    old: Client, grant_types: tuple[str, ...], scope: str, narrowing: Narrowing | None
) -> None:
    changed = msgspec.structs.replace(old, grant_types=grant_types, scope=scope)

    assert find_narrowing(old, changed) == narrowing
