"""A Redis that is full refuses what makes tokens, wholly, and takes what ends them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from service.app import Parts
from tests.cast import (
    ALICE,
    BOB,
    MADE_SECRET,
    PHONE_APP,
    PHONE_CALLBACK,
    WEB_SHOP,
    App,
    assert_error,
    revoke_all,
    tokens_of,
)
from tests.conftest import make_code
from tests.faults.stage import Stage, client_of
from tests.servers import running_service


@pytest.mark.clause("decided-redis-away", "decided-i8-fail-closed", "decided-i10-outage-is-not-theft")
async def test_what_a_full_redis_refuses_is_503_and_leaves_everything_as_it_was(
    stage: Stage, direct: httpx2.AsyncClient, parts: Parts
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(direct, ALICE))
    code = await make_code(parts)
    family = stage.find_family(tokens["refresh_token"])

    with stage.full():
        answers = [
            await PHONE_APP.log_in(direct, ALICE),
            await PHONE_APP.refresh(direct, tokens["refresh_token"]),
            await PHONE_APP.exchange(direct, code, PHONE_CALLBACK),
        ]
        for answer in answers:
            assert_error(answer, 503, "temporarily_unavailable")
            assert int(answer.headers["retry-after"]) >= 1
        assert stage.find_family(tokens["refresh_token"]) == family
        assert stage.knows_access_token(tokens["access_token"])

    assert (await PHONE_APP.exchange(direct, code, PHONE_CALLBACK)).status_code == 200
    assert (await PHONE_APP.refresh(direct, tokens["refresh_token"])).status_code == 200
    assert (await PHONE_APP.log_in(direct, ALICE)).status_code == 200


@pytest.mark.clause("decided-redis-away", "decided-access-tokens-per-family")
async def test_a_full_redis_costs_a_family_of_a_hundred_access_tokens_none_of_them(
    stage: Stage, direct: httpx2.AsyncClient
) -> None:
    """The oldest goes when a new one comes, not before."""
    tokens = tokens_of(await PHONE_APP.log_in(direct, ALICE))
    for _ in range(99):
        await PHONE_APP.refresh(direct, tokens["refresh_token"])
    assert stage.knows_access_token(tokens["access_token"])

    with stage.full():
        assert_error(await PHONE_APP.refresh(direct, tokens["refresh_token"]), 503, "temporarily_unavailable")
        assert stage.knows_access_token(tokens["access_token"])

    assert (await PHONE_APP.refresh(direct, tokens["refresh_token"])).status_code == 200
    assert not stage.knows_access_token(tokens["access_token"])


@pytest.mark.clause("7009-2.1-immediate", "decided-i7-revocation-is-final")
@pytest.mark.parametrize("app", [PHONE_APP, WEB_SHOP, MADE_SECRET])
async def test_a_full_redis_takes_the_revocation_of_a_token(stage: Stage, direct: httpx2.AsyncClient, app: App) -> None:
    tokens, other = tokens_of(await app.log_in(direct, BOB)), tokens_of(await app.log_in(direct, BOB))

    with stage.full():
        assert (await app.revoke(direct, tokens["access_token"])).status_code == 200
        assert not stage.knows_access_token(tokens["access_token"])
        assert (await app.revoke(direct, other["refresh_token"])).status_code == 200
        assert stage.find_family(other["refresh_token"]) is None
        assert not stage.knows_access_token(other["access_token"])

    assert stage.find_family(tokens["refresh_token"]) is not None


@pytest.mark.clause("7009-2.1-immediate", "decided-i7-revocation-is-final", "7009-2.1-client-authenticated-first")
@pytest.mark.parametrize("app", [WEB_SHOP, MADE_SECRET])
async def test_on_a_full_redis_a_worker_that_has_not_seen_a_client_before_takes_its_revocations(
    stage: Stage, direct: httpx2.AsyncClient, tmp_path: Path, app: App
) -> None:
    """A chosen secret that is not remembered is checked, for which room under the limit is reserved."""
    tokens, other = tokens_of(await app.log_in(direct, BOB)), tokens_of(await app.log_in(direct, BOB))

    with running_service(tmp_path, stage.environment()) as fresh:
        async with client_of(fresh) as http:
            with stage.full():
                wrong = await replace(app, client_secret="wrong").revoke(http, other["refresh_token"])
                answer = await app.revoke(http, tokens["refresh_token"])
                assert_error(await app.log_in(http, BOB), 503, "temporarily_unavailable")

    assert_error(wrong, 401, "invalid_client")
    assert answer.status_code == 200
    assert stage.find_family(tokens["refresh_token"]) is None
    assert not stage.knows_access_token(tokens["access_token"])
    assert stage.find_family(other["refresh_token"]) is not None


@pytest.mark.clause("decided-revoke-all-on-a-full-redis", "decided-i7-revocation-is-final")
async def test_a_full_redis_takes_a_revoke_all(stage: Stage, direct: httpx2.AsyncClient, parts: Parts) -> None:
    sessions = [tokens_of(await app.log_in(direct, ALICE)) for app in (PHONE_APP, WEB_SHOP, MADE_SECRET)]
    code = await make_code(parts)

    with stage.full():
        answer = await revoke_all(direct, sessions[0]["access_token"])
        assert answer.status_code == 200
        for tokens in sessions:
            assert not stage.knows_access_token(tokens["access_token"])
            assert stage.find_family(tokens["refresh_token"]) is None

    assert_error(await PHONE_APP.exchange(direct, code, PHONE_CALLBACK), 400, "invalid_grant")
    assert (await PHONE_APP.log_in(direct, ALICE)).status_code == 200


@pytest.mark.clause("decided-readyz")
async def test_a_full_redis_is_ready_since_ending_sessions_is_what_makes_room(
    stage: Stage, direct: httpx2.AsyncClient
) -> None:
    with stage.full():
        answer = await direct.get("/readyz")

    assert answer.status_code == 200
