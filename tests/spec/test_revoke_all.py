"""POST /oauth2/v1/revokeAll over HTTP: revokes everything of the bearer's user, in every client."""

import httpx2
import pytest
import redis

from service.worker import Worker
from tests.conftest import make_code
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    MADE_SECRET,
    PHONE_APP,
    PHONE_CALLBACK,
    SHOP_CALLBACK,
    WEB_SHOP,
    assert_error,
    is_live,
    revoke_all,
    tokens_of,
)


@pytest.mark.clause("spec-3-revoke-all", "spec-4.4-all-tokens", "spec-4.4-status-200", "spec-1-ending-a-session")
@pytest.mark.clause("decided-revoke-all-covers", "decided-i7-revocation-is-final", "6819-5.2.2.4-revocation")
async def test_every_session_of_the_user_ends_in_every_client(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    apps = (PHONE_APP, WEB_SHOP, MADE_SECRET, PHONE_APP)
    sessions = [tokens_of(await client.log_in(http, ALICE)) for client in apps]
    refreshed = tokens_of(await PHONE_APP.refresh(http, sessions[0]["refresh_token"]))

    response = await revoke_all(http, sessions[1]["access_token"])

    assert (response.status_code, response.content) == (200, b"")
    for client, session in zip((*apps, PHONE_APP), (*sessions, refreshed), strict=True):
        assert not is_live(store, session["access_token"])
        assert_error(await client.refresh(http, session["refresh_token"]), 400, "invalid_grant")


@pytest.mark.clause("spec-4.4-bearer-names-user", "spec-4.4-all-tokens")
async def test_sessions_of_other_users_stay(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    alice = tokens_of(await PHONE_APP.log_in(http, ALICE))
    bob = tokens_of(await PHONE_APP.log_in(http, BOB))

    await revoke_all(http, alice["access_token"])

    assert is_live(store, bob["access_token"])
    assert (await PHONE_APP.refresh(http, bob["refresh_token"])).status_code == 200


@pytest.mark.clause("decided-revoke-all-covers", "decided-i7-revocation-is-final")
async def test_codes_that_were_not_exchanged_end_too(http: httpx2.AsyncClient, worker: Worker) -> None:
    alice = tokens_of(await PHONE_APP.log_in(http, ALICE))
    phone_code = await make_code(worker)
    shop_code = await make_code(worker, ALICE, WEB_SHOP, redirect_uri=SHOP_CALLBACK)
    bobs_code = await make_code(worker, BOB)

    await revoke_all(http, alice["access_token"])

    assert_error(await PHONE_APP.exchange(http, phone_code, PHONE_CALLBACK), 400, "invalid_grant")
    assert_error(await WEB_SHOP.exchange(http, shop_code, SHOP_CALLBACK), 400, "invalid_grant")
    assert (await PHONE_APP.exchange(http, bobs_code, PHONE_CALLBACK)).status_code == 200


@pytest.mark.clause("decided-revoke-all-later-tokens-live")
async def test_login_right_after_the_mark_lives(http: httpx2.AsyncClient, worker: Worker, store: redis.Redis) -> None:
    for _ in range(3):
        await revoke_all(http, tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"])
        code = await make_code(worker)
        login, exchange = await PHONE_APP.log_in(http, ALICE), await PHONE_APP.exchange(http, code, PHONE_CALLBACK)

        for tokens in (tokens_of(login), tokens_of(exchange)):
            assert is_live(store, tokens["access_token"])
            assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == 200


@pytest.mark.clause("decided-bearer-invalid", "spec-7.5-revoke-all-always-200")
async def test_a_second_revoke_all_with_the_same_bearer_is_refused(http: httpx2.AsyncClient) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    assert (await revoke_all(http, access_token)).status_code == 200
    assert_error(await revoke_all(http, access_token), 401, "invalid_token")
