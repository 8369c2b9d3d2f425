"""The judgement of a code exchange over a record, a client and a form."""

from __future__ import annotations

import pytest

from service.protocol.authorization_code import AuthorizationCode, check_exchange, make_code_challenge
from service.protocol.client import Client
from service.protocol.errors import InvalidGrant

CALLBACK = "https://shop.example/callback"
VERIFIER = "v" * 43
SHOP = Client(client_id="shop", scope="realm:main role:enduser role:partner")
OTHER = Client(client_id="other", scope=SHOP.scope)


def code(*, scope: str = "realm:main role:enduser", code_challenge: str | None = None) -> AuthorizationCode:
    return AuthorizationCode(
        username="alice@example.com",
        client_id="shop",
        redirect_uri=CALLBACK,
        scope=scope,
        code_challenge=code_challenge,
    )


def test_a_right_exchange_passes() -> None:
    check_exchange(code(), SHOP, {"redirect_uri": CALLBACK})
    check_exchange(
        code(code_challenge=make_code_challenge(VERIFIER)), SHOP, {"redirect_uri": CALLBACK, "code_verifier": VERIFIER}
    )


@pytest.mark.clause("6749-4.1.3-code-of-this-client", "6749-4.1.3-redirect-uri-identical", "7636-4.6-not-equal")
@pytest.mark.clause("decided-verifier-without-challenge")
@pytest.mark.parametrize(
    ("found", "client", "form", "reason"),
    [
        pytest.param(code(), OTHER, {"redirect_uri": CALLBACK}, "code_of_another_client", id="another client"),
        pytest.param(code(), SHOP, {"redirect_uri": CALLBACK + "/"}, "redirect_uri_differs", id="another address"),
        pytest.param(
            code(),
            SHOP,
            {"redirect_uri": CALLBACK, "code_verifier": VERIFIER},
            "code_verifier_unexpected",
            id="verifier",
        ),
        pytest.param(
            code(code_challenge="x" * 43), SHOP, {"redirect_uri": CALLBACK}, "code_verifier_missing", id="no verifier"
        ),
        pytest.param(
            code(scope="realm:main role:admin"), SHOP, {"redirect_uri": CALLBACK}, "code_scope_withdrawn", id="scope"
        ),
        pytest.param(code(), OTHER, {"redirect_uri": "x"}, "code_of_another_client", id="the client comes first"),
    ],
)
def test_any_other_exchange_is_refused_for_its_reason(
    found: AuthorizationCode, client: Client, form: dict[str, str], reason: str
) -> None:
    with pytest.raises(InvalidGrant) as caught:
        check_exchange(found, client, form)

    assert caught.value.reason == reason
