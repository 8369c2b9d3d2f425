"""POST /oauth2/v1/revoke over HTTP: revokes one access token, or a refresh token with its family."""

from dataclasses import replace

import httpx2
import pytest
import redis

from service.worker import Worker
from tests.conftest import Clock, make_code
from tests.support.clients_and_users import (
    ALICE,
    GATEWAY,
    PHONE_APP,
    PHONE_CALLBACK,
    REVOKE,
    WEB_SHOP,
    OAuthClient,
    assert_error,
    is_live,
    revoke_all,
    tokens_of,
)


@pytest.mark.clause(
    "7009-2-access-tokens",
    "decided-revoke-access-token-alone",
    "7009-2.1-refresh-token-survives",
    "6819-4.1.3-access-token-taken",
)
@pytest.mark.clause("spec-3-revoke-invalidates", "spec-4.3-type-found", "7009-2.1-immediate", "spec-1-ending-a-session")
async def test_an_access_token_ends_alone(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))
    second = tokens_of(await PHONE_APP.refresh(http, first["refresh_token"]))

    assert (await PHONE_APP.revoke(http, first["access_token"])).status_code == 200
    assert not is_live(store, first["access_token"])
    assert_error(await revoke_all(http, first["access_token"]), 401, "invalid_token")
    assert is_live(store, second["access_token"])
    assert (await PHONE_APP.refresh(http, second["refresh_token"])).status_code == 200


@pytest.mark.clause("7009-2-refresh-tokens", "decided-revoke-any-generation", "7009-2.1-access-tokens-of-the-grant")
@pytest.mark.clause("spec-3-revoke-invalidates", "spec-4.3-type-found", "7009-2.1-immediate", "6819-5.2.2.4-revocation")
@pytest.mark.clause("decided-i7-revocation-is-final")
@pytest.mark.parametrize("generation", [0, 1, 2])
async def test_a_refresh_token_of_any_generation_ends_the_family(
    http: httpx2.AsyncClient, store: redis.Redis, clock: Clock, generation: int
) -> None:
    tokens = [tokens_of(await PHONE_APP.log_in(http, ALICE))]
    for _ in range(2):
        clock.advance(10)
        tokens.append(tokens_of(await PHONE_APP.refresh(http, tokens[-1]["refresh_token"])))

    assert (await PHONE_APP.revoke(http, tokens[generation]["refresh_token"])).status_code == 200
    assert [is_live(store, each["access_token"]) for each in tokens] == [False] * 3
    for each in tokens:
        assert_error(await PHONE_APP.refresh(http, each["refresh_token"]), 400, "invalid_grant")


@pytest.mark.clause("decided-revoke-any-generation")
async def test_refresh_token_after_its_grace_can_be_revoked(http: httpx2.AsyncClient, clock: Clock) -> None:
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]
    second = tokens_of(await PHONE_APP.refresh(http, first))["refresh_token"]
    clock.advance(1000)

    assert (await PHONE_APP.revoke(http, first)).status_code == 200
    assert_error(await PHONE_APP.refresh(http, second), 400, "invalid_grant")


@pytest.mark.clause("decided-revoke-foreign-token", "7009-2.1-own-tokens-only", "spec-7.5-revoke-always-200")
async def test_revoking_another_clients_token_returns_200_without_effect(
    http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))

    assert (await WEB_SHOP.revoke(http, tokens["access_token"])).status_code == 200
    assert (await WEB_SHOP.revoke(http, tokens["refresh_token"])).status_code == 200
    assert is_live(store, tokens["access_token"])
    assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == 200


@pytest.mark.clause("7009-2.1-hint-ignored", "7009-2.2-unknown-hint-ignored", "spec-4.3-hint-ignored")
@pytest.mark.clause("7009-2.1-all-types-searched", "spec-4.3-type-found")
@pytest.mark.parametrize("hint", ["access_token", "refresh_token", "é"], ids=ascii)
@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
async def test_a_hint_changes_nothing(http: httpx2.AsyncClient, store: redis.Redis, kind: str, hint: str) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))

    assert (await PHONE_APP.revoke(http, tokens[kind], token_type_hint=hint)).status_code == 200
    assert not is_live(store, tokens["access_token"])
    refreshed = await PHONE_APP.refresh(http, tokens["refresh_token"])
    assert refreshed.status_code == (200 if kind == "access_token" else 400)


@pytest.mark.clause("7009-2.2-status-200", "spec-3-revoke-unknown", "spec-4.3-status-200", "spec-7.5-revoke-always-200")
@pytest.mark.parametrize(
    "token",
    [
        pytest.param("tsat1_" + "0" * 47, id="an unknown access token"),
        pytest.param("tsrt1_" + "0" * 55, id="a forged refresh token"),
        pytest.param("x" * 60_000, id="a very long one"),
    ],
)
async def test_invalid_token_at_revoke_is_200(http: httpx2.AsyncClient, token: str) -> None:
    response = await PHONE_APP.revoke(http, token)

    assert (response.status_code, response.content) == (200, b"")


@pytest.mark.clause("7009-2.2-status-200", "spec-3-revoke-unknown")
@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
async def test_second_revocation_of_a_token_is_200(http: httpx2.AsyncClient, kind: str) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))

    assert (await PHONE_APP.revoke(http, tokens[kind])).status_code == 200
    assert (await PHONE_APP.revoke(http, tokens[kind])).status_code == 200


@pytest.mark.clause("decided-token-canonical-spelling")
@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
async def test_white_space_around_a_token_is_ignored(http: httpx2.AsyncClient, store: redis.Redis, kind: str) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))

    assert (await PHONE_APP.revoke(http, f" {tokens[kind]}\r\n")).status_code == 200
    assert not is_live(store, tokens["access_token"])


async def test_code_as_token_stays_redeemable(http: httpx2.AsyncClient, worker: Worker) -> None:
    code = await make_code(worker)

    assert (await PHONE_APP.revoke(http, code)).status_code == 200
    assert (await PHONE_APP.exchange(http, code, PHONE_CALLBACK)).status_code == 200


@pytest.mark.clause("7009-2.1-token-required", "spec-4.3-token-needed", "decided-token-missing-at-revoke")
@pytest.mark.clause("7009-2.2.1-error-format", "decided-empty-parameter-omitted")
@pytest.mark.parametrize("form", [{}, {"token": ""}, {"token_type_hint": "access_token"}])
async def test_a_revocation_without_a_token_is_invalid_request(http: httpx2.AsyncClient, form: dict[str, str]) -> None:
    assert_error(await http.post(REVOKE, data=PHONE_APP.credentials | form), 400, "invalid_request")


@pytest.mark.clause("7009-2.1-client-authenticated-first", "6749-10.2-authenticated-when-possible")
@pytest.mark.clause("spec-4.3-client-authenticates", "7009-2.2.1-error-format", "6749-5.2-basic-challenge")
@pytest.mark.parametrize(
    "client",
    [replace(WEB_SHOP, client_secret="wrong"), OAuthClient("web-shop"), OAuthClient("nobody"), OAuthClient("")],
)
async def test_revocation_without_client_authentication_is_refused(
    http: httpx2.AsyncClient, client: OAuthClient
) -> None:
    refresh_token = tokens_of(await WEB_SHOP.log_in(http, ALICE))["refresh_token"]

    response = await client.revoke(http, refresh_token)

    assert_error(response, 401, "invalid_client")
    assert response.headers["www-authenticate"].startswith("Basic realm=")
    assert (await WEB_SHOP.refresh(http, refresh_token)).status_code == 200


@pytest.mark.clause("spec-5.1-client-authentication", "spec-4.3-client-authenticates")
async def test_every_client_may_revoke(http: httpx2.AsyncClient) -> None:
    assert (await GATEWAY.revoke(http, "x")).status_code == 200
    assert (await http.post(REVOKE, data={"token": "x"}, headers=GATEWAY.basic)).status_code == 200
    assert (await http.post(REVOKE, data={"token": "x", "client_id": "phone-app"})).status_code == 200
