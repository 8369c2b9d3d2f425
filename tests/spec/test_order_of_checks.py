"""The order of checks over HTTP: of two mistakes the first in this order is reported.

Each pair of neighbours has a test.

Form, client, missing parameters, grant type, the client's right to it, the client's scope, throttle, password or code
or refresh token, the user's scope.
"""

from dataclasses import replace

import httpx2
import pytest

from tests.conftest import Clock, MakeSettings, serving
from tests.spec.wrong_logins import WRONG_ALICE, WRONG_SHOP
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    GATEWAY,
    PHONE_APP,
    REVOKE,
    TOKEN,
    WEB_SHOP,
    assert_error,
    login_form,
)


@pytest.mark.clause("decided-order-form-first")
@pytest.mark.parametrize("address", [TOKEN, REVOKE])
@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"content": b"client_id=web-shop&client_secret=wrong"}, id="content type"),
        pytest.param(
            {
                "content": b"client_id=web-shop&client_secret=wrong&x=%FF",
                "headers": {"Content-Type": "application/x-www-form-urlencoded"},
            },
            id="encoding",
        ),
        pytest.param({"data": {"client_id": ["web-shop", "web-shop"], "client_secret": "wrong"}}, id="repeated"),
    ],
)
async def test_the_form_comes_before_the_client(
    http: httpx2.AsyncClient, address: str, broken: dict[str, bytes]
) -> None:
    assert_error(await http.post(address, **broken), 400, "invalid_request")  # type: ignore[arg-type]


@pytest.mark.clause("decided-order-client-before-parameters")
@pytest.mark.parametrize(
    "form",
    [
        pytest.param({}, id="a missing grant_type"),
        pytest.param({"grant_type": "implicit"}, id="an unknown grant_type"),
        pytest.param({"grant_type": "refresh_token"}, id="a missing refresh_token"),
        pytest.param({"grant_type": "password", "scope": "x"}, id="missing user credentials"),
    ],
)
async def test_the_client_comes_before_missing_parameters(http: httpx2.AsyncClient, form: dict[str, str]) -> None:
    assert_error(await http.post(TOKEN, data=WRONG_SHOP.credentials | form), 401, "invalid_client")


@pytest.mark.clause("decided-order-client-before-parameters", "7009-2.1-client-authenticated-first")
async def test_at_revoke_the_client_comes_before_the_token(http: httpx2.AsyncClient) -> None:
    assert_error(await http.post(REVOKE, data=WRONG_SHOP.credentials), 401, "invalid_client")


@pytest.mark.clause("decided-order-missing-parameter-before-grant-type", "decided-unsupported-grant-type-400")
async def test_missing_and_unknown_grant_types_differ(http: httpx2.AsyncClient) -> None:
    for client in (PHONE_APP, GATEWAY):
        missing = await http.post(TOKEN, data=client.credentials)
        unknown = await http.post(TOKEN, data=client.credentials | {"grant_type": "implicit"})

        assert_error(missing, 400, "invalid_request")
        assert_error(unknown, 400, "unsupported_grant_type")


@pytest.mark.clause("decided-order-missing-parameter-before-grant-type")
@pytest.mark.parametrize(
    "form",
    [
        pytest.param({"grant_type": "password", "username": "x"}, id="password"),
        pytest.param({"grant_type": "refresh_token"}, id="refresh_token"),
        pytest.param({"grant_type": "authorization_code", "code": "x"}, id="redirect_uri"),
    ],
)
async def test_missing_parameters_come_before_the_right_to_the_grant(
    http: httpx2.AsyncClient, form: dict[str, str]
) -> None:
    assert_error(await http.post(TOKEN, data=GATEWAY.credentials | form), 400, "invalid_request")


@pytest.mark.clause("decided-order-right-to-grant")
@pytest.mark.parametrize(
    "form",
    [
        pytest.param(login_form(WRONG_ALICE, "realm:main role:admin"), id="a scope beyond the client"),
        pytest.param(login_form(WRONG_ALICE, "nonsense"), id="a malformed scope"),
        pytest.param(login_form(WRONG_ALICE, ""), id="no scope"),
        pytest.param(login_form(WRONG_ALICE), id="a wrong password"),
        pytest.param({"grant_type": "authorization_code", "code": "x", "redirect_uri": "x"}, id="a wrong code"),
        pytest.param({"grant_type": "refresh_token", "refresh_token": "x", "scope": "x"}, id="a wrong refresh token"),
    ],
)
async def test_grant_permission_is_checked_before_its_parameters(
    http: httpx2.AsyncClient, form: dict[str, str]
) -> None:
    assert_error(await http.post(TOKEN, data=GATEWAY.credentials | form), 400, "unauthorized_client")


@pytest.mark.clause("decided-order-client-scope-before-throttle")
@pytest.mark.parametrize("scope", ["realm:main role:admin", "nonsense"])
async def test_the_clients_scope_comes_before_the_throttle(
    make_settings: MakeSettings, clock: Clock, registry: None, scope: str
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS="1/minute"), clock) as http:
        await PHONE_APP.log_in(http, WRONG_ALICE)

        assert_error(await PHONE_APP.log_in(http, ALICE), 429, "invalid_grant")
        assert_error(await PHONE_APP.log_in(http, ALICE, scope), 400, "invalid_scope")


@pytest.mark.clause("decided-order-client-scope-before-throttle")
async def test_the_clients_scope_comes_before_the_refresh_token(http: httpx2.AsyncClient) -> None:
    assert_error(await WEB_SHOP.refresh(http, "x", scope="realm:main role:organisation"), 400, "invalid_scope")
    assert_error(await WEB_SHOP.refresh(http, "x", scope="realm:main role:partner"), 400, "invalid_grant")


@pytest.mark.clause("decided-order-throttle-before-password", "decided-limit-stops-checking")
async def test_the_throttle_comes_before_the_password(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS="1/minute"), clock) as http:
        assert_error(await PHONE_APP.log_in(http, WRONG_ALICE), 400, "invalid_grant")
        assert_error(await PHONE_APP.log_in(http, WRONG_ALICE), 429, "invalid_grant")
        assert_error(await PHONE_APP.log_in(http, ALICE), 429, "invalid_grant")


@pytest.mark.clause("decided-order-user-scope-last", "decided-user-scope-after-password")
async def test_the_users_scope_comes_last(http: httpx2.AsyncClient) -> None:
    scope = "realm:main role:organisation"

    assert_error(await PHONE_APP.log_in(http, replace(BOB, password="wrong"), scope), 400, "invalid_grant")
    assert_error(await PHONE_APP.log_in(http, BOB, scope), 400, "invalid_scope")


@pytest.mark.clause("decided-order-user-scope-last", "6749-6-scope-not-wider")
async def test_the_granted_scope_comes_after_the_refresh_token(http: httpx2.AsyncClient) -> None:
    refresh_token = (await PHONE_APP.log_in(http, ALICE)).json()["refresh_token"]
    scope = "realm:main role:organisation"

    assert_error(await PHONE_APP.refresh(http, "x", scope=scope), 400, "invalid_grant")
    assert_error(await PHONE_APP.refresh(http, refresh_token, scope=scope), 400, "invalid_scope")
