"""The authorization_code grant over HTTP: a code buys tokens once, and only for the client that it was issued to."""

import io
from dataclasses import replace

import httpx2
import pytest

from service.worker import Worker
from tests.conftest import Clock, MakeSettings, make_code, serving
from tests.support.clients_and_users import (
    ALICE,
    PHONE_APP,
    PHONE_CALLBACK,
    READER,
    SHOP_CALLBACK,
    TOKEN,
    WEB_SHOP,
    OAuthClient,
    assert_error,
    tokens_of,
)


@pytest.mark.clause("6749-4.1.4-token-response", "spec-4.2-code-grant", "7636-5-without-pkce", "spec-1-three-grants")
async def test_a_right_code_buys_tokens(http: httpx2.AsyncClient, worker: Worker) -> None:
    tokens = tokens_of(await PHONE_APP.exchange(http, await make_code(worker), PHONE_CALLBACK))

    assert tokens["scope"] == "realm:main role:enduser"
    assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == 200


@pytest.mark.clause(
    "6749-4.1.3-code-of-this-client",
    "6749-4.1.3-code-of-this-public-client",
    "6749-4.1.2-code-bound",
    "6819-4.4.1.13-code-of-another-client",
)
@pytest.mark.clause("6749-10.5-same-client", "6819-5.2.4.4-code-bound-to-client", "6819-5.1.5.8-bound-to-client")
@pytest.mark.clause("decided-wrong-exchange-leaves-the-code", "6749-5.2-invalid-grant")
@pytest.mark.parametrize(("owner", "thief"), [(PHONE_APP, WEB_SHOP), (WEB_SHOP, PHONE_APP)])
async def test_another_client_cannot_use_a_code_and_does_not_spoil_it(
    http: httpx2.AsyncClient, worker: Worker, json_logs: io.StringIO, owner: OAuthClient, thief: OAuthClient
) -> None:
    code = await make_code(worker, ALICE, owner, redirect_uri=PHONE_CALLBACK)

    assert_error(await thief.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")
    tokens = tokens_of(await owner.exchange(http, code, PHONE_CALLBACK))
    assert_error(await thief.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")
    assert (await owner.refresh(http, tokens["refresh_token"])).status_code == 200
    assert "code_replayed" not in json_logs.getvalue()


@pytest.mark.clause(
    "6749-4.1.3-redirect-uri-identical",
    "6749-10.6-redirect-uri-identical",
    "6749-4.1.2-code-bound",
    "6819-4.4.1.7-code-by-another-redirect-uri",
)
@pytest.mark.clause("spec-4.2-code-redirect-uri-equal", "6819-5.2.4.5-code-bound-to-redirect-uri")
@pytest.mark.clause("decided-wrong-exchange-leaves-the-code", "6749-5.2-invalid-grant", "decided-invalid-grant-400")
@pytest.mark.parametrize(
    "redirect_uri",
    [
        pytest.param("https://shop.example:8443/other?keep=this", id="another one that is registered"),
        pytest.param("https://shop.example/callback/", id="a slash more"),
        pytest.param("https://shop.example:443/callback", id="the port written out"),
        pytest.param("https://shop.example/c%61llback", id="a letter escaped"),
    ],
)
async def test_the_redirect_uri_is_the_same_in_each_character(
    http: httpx2.AsyncClient, worker: Worker, redirect_uri: str
) -> None:
    code = await make_code(worker, ALICE, WEB_SHOP, redirect_uri=SHOP_CALLBACK)

    assert_error(await WEB_SHOP.exchange(http, code, redirect_uri), 400, "invalid_grant")
    assert (await WEB_SHOP.exchange(http, code, SHOP_CALLBACK)).status_code == 200


@pytest.mark.clause("6749-4.1.3-redirect-uri-present", "6749-4.1.3-code-required", "6749-5.2-invalid-request")
@pytest.mark.clause("decided-wrong-exchange-leaves-the-code", "decided-invalid-request-400")
@pytest.mark.parametrize("missing", ["code", "redirect_uri"])
async def test_exchange_needs_code_and_redirect_uri(http: httpx2.AsyncClient, worker: Worker, missing: str) -> None:
    form = {"grant_type": "authorization_code", "code": await make_code(worker), "redirect_uri": PHONE_CALLBACK}

    assert_error(await http.post(TOKEN, data=PHONE_APP.credentials | form | {missing: ""}), 400, "invalid_request")
    assert (await http.post(TOKEN, data=PHONE_APP.credentials | form)).status_code == 200


@pytest.mark.clause("6749-4.1.3-client-authenticates", "6749-3.2.1-client-authenticates", "6749-10.5-same-client")
@pytest.mark.clause("decided-wrong-exchange-leaves-the-code")
@pytest.mark.parametrize("secret", [None, "wrong"])
async def test_exchange_without_the_secret_keeps_the_code(
    http: httpx2.AsyncClient, worker: Worker, secret: str | None
) -> None:
    code = await make_code(worker, ALICE, WEB_SHOP, redirect_uri=SHOP_CALLBACK)
    impostor = replace(WEB_SHOP, client_secret=secret)

    assert_error(await impostor.exchange(http, code, SHOP_CALLBACK), 401, "invalid_client")
    assert (await WEB_SHOP.exchange(http, code, SHOP_CALLBACK)).status_code == 200


@pytest.mark.clause("6749-5.2-unauthorized-client", "decided-unauthorized-client-400")
async def test_a_client_without_the_code_grant_cannot_use_it(http: httpx2.AsyncClient, worker: Worker) -> None:
    code = await make_code(worker, ALICE, READER)

    assert_error(await READER.exchange(http, code, PHONE_CALLBACK), 400, "unauthorized_client")


@pytest.mark.clause("6749-4.1.3-code-valid", "6749-2.3-public-client-proves-nothing")
@pytest.mark.parametrize("code", ["tsac1_" + "0" * 47, "é", "x" * 10_000], ids=repr)
async def test_a_made_up_code_is_invalid_grant(http: httpx2.AsyncClient, code: str) -> None:
    assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")


@pytest.mark.clause(
    "decided-code-ttl", "6749-4.1.2-code-expires", "6749-4.1.2-code-ten-minutes", "6819-4.4.1.1-code-leaked"
)
@pytest.mark.clause("6749-4.1.3-code-valid", "6749-10.5-short-lived-single-use", "6819-5.1.5.3-short-expiry")
@pytest.mark.clause("6819-5.1.5.2-expiry")
async def test_code_expires_after_a_minute(http: httpx2.AsyncClient, worker: Worker, clock: Clock) -> None:
    in_time, late = await make_code(worker), await make_code(worker)
    clock.advance(50)

    assert (await PHONE_APP.exchange(http, in_time, PHONE_CALLBACK)).status_code == 200
    clock.advance(10)
    assert_error(await PHONE_APP.exchange(http, late, PHONE_CALLBACK), 400, "invalid_grant")


@pytest.mark.clause("decided-access-token-within-family", "decided-session-max-age")
async def test_the_age_of_a_session_counts_from_its_exchange(
    make_settings: MakeSettings, clock: Clock, worker: Worker
) -> None:
    code = await make_code(worker)
    async with serving(make_settings(TOKEN_SERVICE_SESSION_MAX_AGE="30"), clock) as http:
        tokens = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))
        clock.advance(30)

        assert int(tokens["expires_in"]) == 30
        assert_error(await PHONE_APP.refresh(http, tokens["refresh_token"]), 400, "invalid_grant")


@pytest.mark.clause("spec-4.2-code-client-id-or-basic", "spec-4.2-basic")
async def test_with_basic_the_body_needs_no_client_id(http: httpx2.AsyncClient, worker: Worker) -> None:
    code = await make_code(worker, ALICE, WEB_SHOP, redirect_uri=SHOP_CALLBACK)
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": SHOP_CALLBACK}

    assert (await http.post(TOKEN, data=form, headers=WEB_SHOP.basic)).status_code == 200
