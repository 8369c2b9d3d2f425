"""The refresh grant over HTTP: each refresh token is spent once, and replaced by a new one."""

import httpx2
import pytest
import redis

from tests.conftest import SECRET_KEY, Clock, MakeSettings, serving
from tests.support.clients_and_users import (
    ALICE,
    MADE_SECRET,
    PHONE_APP,
    TOKEN,
    WEB_SHOP,
    OAuthClient,
    assert_error,
    is_live,
    tokens_of,
)


@pytest.mark.clause("spec-4.2-refresh-grant", "spec-3-refresh-rotates", "6749-6-new-token")
@pytest.mark.clause("6819-5.2.2.3-refresh-rotation", "6749-6-scope-omitted", "6749-6-new-token-same-scope")
@pytest.mark.parametrize("client", [PHONE_APP, WEB_SHOP, MADE_SECRET], ids=lambda client: client.client_id)
async def test_refresh_returns_two_new_tokens(http: httpx2.AsyncClient, client: OAuthClient) -> None:
    first = tokens_of(await client.log_in(http, ALICE))

    second = tokens_of(await client.refresh(http, first["refresh_token"]))

    assert second["scope"] == first["scope"]
    assert second["access_token"] != first["access_token"]
    assert second["refresh_token"] != first["refresh_token"]


@pytest.mark.clause("spec-4.2-refresh-once", "spec-8-refresh-once", "6749-6-old-token-revoked")
@pytest.mark.clause("decided-refresh-grace-setting", "6819-5.1.5.4-one-time-use")
async def test_without_a_grace_a_refresh_token_works_a_single_time(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_REFRESH_GRACE="0"), clock) as http:
        refresh_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]

        assert (await PHONE_APP.refresh(http, refresh_token)).status_code == 200
        assert_error(await PHONE_APP.refresh(http, refresh_token), 400, "invalid_grant")


@pytest.mark.clause("decided-old-access-token-lives-on")
async def test_the_old_access_token_keeps_its_own_expiry(
    http: httpx2.AsyncClient, clock: Clock, store: redis.Redis
) -> None:
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))
    clock.advance(300)

    second = tokens_of(await PHONE_APP.refresh(http, first["refresh_token"]))

    assert is_live(store, first["access_token"])
    clock.advance(300)
    assert not is_live(store, first["access_token"])
    assert is_live(store, second["access_token"])


@pytest.mark.clause("6749-6-refresh-token-required", "6749-5.2-invalid-request", "decided-invalid-request-400")
async def test_a_refresh_without_its_token_is_invalid_request(http: httpx2.AsyncClient) -> None:
    response = await http.post(TOKEN, data=PHONE_APP.credentials | {"grant_type": "refresh_token"})

    assert_error(response, 400, "invalid_request")


@pytest.mark.clause("6749-6-token-validated", "6749-5.2-invalid-grant", "decided-invalid-grant-400")
@pytest.mark.parametrize(
    "refresh_token", ["tsrt1_", "tsat1_" + "0" * 47, "tsrt1_000" + "A" * 52, "é", "x" * 10_000], ids=repr
)
async def test_a_made_up_refresh_token_is_invalid_grant(http: httpx2.AsyncClient, refresh_token: str) -> None:
    assert_error(await PHONE_APP.refresh(http, refresh_token), 400, "invalid_grant")


@pytest.mark.clause("6749-6-token-validated", "decided-grace-does-not-revive")
async def test_grace_revives_no_revoked_session(http: httpx2.AsyncClient) -> None:
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))
    second = tokens_of(await PHONE_APP.refresh(http, first["refresh_token"]))
    await PHONE_APP.revoke(http, second["refresh_token"])

    assert_error(await PHONE_APP.refresh(http, first["refresh_token"]), 400, "invalid_grant")
    assert_error(await PHONE_APP.refresh(http, second["refresh_token"]), 400, "invalid_grant")


@pytest.mark.clause("decided-secret-key-rotation")
async def test_older_key_verifies_until_it_is_removed(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    old, new = SECRET_KEY, "a new key of the tests of 32 bytes or more!"
    async with serving(make_settings(TOKEN_SERVICE_SECRET_KEY=old), clock) as http:
        first = tokens_of(await PHONE_APP.log_in(http, ALICE))
    async with serving(make_settings(TOKEN_SERVICE_SECRET_KEY=f"{new},{old}"), clock) as http:
        second = tokens_of(await PHONE_APP.refresh(http, first["refresh_token"]))

    async with serving(make_settings(TOKEN_SERVICE_SECRET_KEY=new), clock) as http:
        assert_error(await PHONE_APP.refresh(http, first["refresh_token"]), 400, "invalid_grant")
        assert (await PHONE_APP.refresh(http, second["refresh_token"])).status_code == 200
