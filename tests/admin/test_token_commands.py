"""`token inspect · revoke`: the state of a token, and the reason of its end."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
import redis

from service.worker import Worker
from tests.admin.conftest import Admin, is_live
from tests.conftest import Clock, make_code
from tests.support.clients_and_users import ALICE, PHONE_APP, PHONE_CALLBACK, REVOKE_ALL, WEB_SHOP


async def inspect(admin: Admin, token: str) -> Any:
    answer = await admin("token", "inspect", token, "--json")
    assert answer.status == 0
    return answer.json


async def test_an_access_token_is_told_with_its_session(admin: Admin, http: httpx2.AsyncClient) -> None:
    tokens = (await PHONE_APP.log_in(http, ALICE)).json()

    told = await inspect(admin, tokens["access_token"])

    assert (told["state"], told["client_id"], told["username"], told["scope"]) == (
        *("live", "phone-app", ALICE.username, "realm:main role:enduser"),
    )
    assert (told["family_state"], told["head_generation"], told["live_access_tokens"]) == ("live", 1, 1)
    piped = await admin("token", "inspect", "--json", typed=tokens["access_token"] + "\n")
    assert piped.json == told


async def test_inspect_tells_that_a_replay_ended_a_session(
    admin: Admin, http: httpx2.AsyncClient, clock: Clock
) -> None:
    first = (await PHONE_APP.log_in(http, ALICE)).json()["refresh_token"]
    second = (await PHONE_APP.refresh(http, first)).json()["refresh_token"]
    assert [(await inspect(admin, token))["state"] for token in (first, second)] == ["used", "live"]
    clock.advance(301)
    await PHONE_APP.refresh(http, first)

    told = await inspect(admin, second)

    assert (told["state"], told["ended_by"], told["username"]) == ("ended", "replayed", ALICE.username)
    assert (told["generation"], told["head_generation"], told["replayed_generation"]) == (2, 2, 1)


async def test_the_other_ends_are_told_apart(admin: Admin, http: httpx2.AsyncClient) -> None:
    revoked, everywhere, console = [(await PHONE_APP.log_in(http, ALICE)).json() for _ in range(3)]
    await PHONE_APP.revoke(http, revoked["refresh_token"])
    await admin("token", "revoke", console["refresh_token"])
    await http.post(REVOKE_ALL, headers={"Authorization": f"Bearer {everywhere['access_token']}"})

    ends = [(await inspect(admin, each["refresh_token"]))["ended_by"] for each in (revoked, console, everywhere)]

    assert ends == ["revoked", "console", "revoke_all"]
    assert await inspect(admin, revoked["access_token"]) == {"token": "access_token", "state": "unknown"}


async def test_a_code_is_told_before_and_after_its_exchange(
    admin: Admin, http: httpx2.AsyncClient, worker: Worker
) -> None:
    code = await make_code(worker)
    assert (await inspect(admin, code))["state"] == "live"

    await PHONE_APP.exchange(http, code, PHONE_CALLBACK)

    told = await inspect(admin, code)
    assert (told["state"], told["client_id"], told["family_state"]) == ("exchanged", "phone-app", "live")


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
async def test_a_token_is_revoked_whoever_its_client_is(admin: Admin, http: httpx2.AsyncClient, kind: str) -> None:
    tokens = (await WEB_SHOP.log_in(http, ALICE)).json()

    done = await admin("token", "revoke", tokens[kind], "--json")

    assert done.json == {"revoked": True, "client_id": "web-shop", "username": ALICE.username}
    assert not await is_live(http, tokens["access_token"])
    assert (await WEB_SHOP.refresh(http, tokens["refresh_token"])).status_code == (200 if kind[0] == "a" else 400)
    assert (await admin("token", "revoke", tokens[kind])).status == 1


async def test_neither_redis_nor_the_events_see_the_token(
    admin: Admin, http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    tokens = (await PHONE_APP.log_in(http, ALICE)).json()
    for verb in ("inspect", "revoke"):
        for token in tokens.values():
            await admin("token", verb, str(token))

    dumped = b"".join(store.dump(key) or b"" for key in store.scan_iter())

    assert not any(tokens[kind].encode() in dumped for kind in ("access_token", "refresh_token"))
