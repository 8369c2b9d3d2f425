"""A second use of a code over HTTP: it is refused, and revokes the tokens of the first use."""

import httpx2
import pytest
import redis

from service.protocol.authorization_code import make_code_challenge
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, make_code, serving
from tests.support.clients_and_users import (
    ALICE,
    PHONE_APP,
    PHONE_CALLBACK,
    SHOP_CALLBACK,
    WEB_SHOP,
    assert_error,
    is_live,
    tokens_of,
)

VERIFIER = "v" * 43


@pytest.mark.clause("6749-4.1.2-second-use-revokes", "decided-second-exchange-ends-family")
@pytest.mark.clause("6749-10.5-second-exchange-revokes", "6819-5.2.1.1-derived-tokens-revoked")
async def test_a_second_use_ends_every_token_of_the_first(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis
) -> None:
    code = await make_code(worker)
    first = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))
    second = tokens_of(await PHONE_APP.refresh(http, first["refresh_token"]))

    assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")
    assert not is_live(store, first["access_token"])
    assert not is_live(store, second["access_token"])
    assert_error(await PHONE_APP.refresh(http, second["refresh_token"]), 400, "invalid_grant")


@pytest.mark.clause("decided-wrong-exchange-leaves-the-code", "6749-4.1.2-second-use-denied")
async def test_used_code_from_another_client_ends_no_session(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis
) -> None:
    code = await make_code(worker, ALICE, WEB_SHOP, redirect_uri=SHOP_CALLBACK)
    tokens = tokens_of(await WEB_SHOP.exchange(http, code, SHOP_CALLBACK))

    assert_error(await PHONE_APP.exchange(http, code, SHOP_CALLBACK), 400, "invalid_grant")
    assert is_live(store, tokens["access_token"])
    assert (await WEB_SHOP.refresh(http, tokens["refresh_token"])).status_code == 200


@pytest.mark.clause("decided-second-exchange-needs-verifier", "decided-wrong-exchange-leaves-the-code")
@pytest.mark.parametrize("extra", [{}, {"code_verifier": "w" * 43}], ids=["no verifier", "a wrong verifier"])
async def test_a_second_use_without_the_right_verifier_ends_nothing(
    http: httpx2.AsyncClient, worker: Worker, extra: dict[str, str]
) -> None:
    code = await make_code(worker, code_challenge=make_code_challenge(VERIFIER))
    tokens = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK, code_verifier=VERIFIER))

    assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK, **extra), 400, "invalid_grant")
    assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == 200


@pytest.mark.clause("decided-second-exchange-remembered")
@pytest.mark.parametrize(("seconds", "status"), [(590, 400), (600, 200)])
async def test_a_used_code_is_remembered_for_ten_minutes(
    http: httpx2.AsyncClient, worker: Worker, clock: Clock, seconds: int, status: int
) -> None:
    code = await make_code(worker)
    tokens = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))
    clock.advance(seconds)

    assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")
    assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == status


@pytest.mark.clause("decided-second-exchange-remembered")
async def test_used_code_is_remembered_for_its_lifetime(
    make_settings: MakeSettings, clock: Clock, worker: Worker
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_CODE_TTL="3600"), clock) as http:
        code = await make_code(worker)
        tokens = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))
        clock.advance(3590)

        assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")
        assert_error(await PHONE_APP.refresh(http, tokens["refresh_token"]), 400, "invalid_grant")
