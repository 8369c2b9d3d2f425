"""`token inspect · revoke`: the state of a token, and the reason of its end."""

import re

import httpx2
import pytest
import redis

from tests.admin.conftest import Admin, is_live
from tests.conftest import Clock
from tests.support.clients_and_users import ALICE, PHONE_APP, REVOKE_ALL, WEB_SHOP
from tests.support.waiting import until_status


async def explain(admin: Admin, token: str) -> str:
    answer = await admin("token", "inspect", token, "--json")
    assert answer.status == 0
    text: str = answer.json["explanation"]
    return text


async def test_inspect_shows_an_access_token_with_its_session(admin: Admin, http: httpx2.AsyncClient) -> None:
    tokens = (await PHONE_APP.log_in(http, ALICE)).json()

    inspection = (await admin("token", "inspect", tokens["access_token"], "--json")).json

    assert inspection["active"] is True
    piped = await admin("token", "inspect", "--json", typed=tokens["access_token"] + "\n")
    assert piped.json["username"] == ALICE.username
    assert re.match(r"Valid for another [0-9]+ min", inspection["explanation"])
    assert (inspection["client_id"], inspection["username"], inspection["scope"]) == (
        "phone-app",
        ALICE.username,
        "realm:main role:enduser",
    )
    assert (inspection["session_active"], inspection["newest_generation"]) == (True, 1)
    assert inspection["grant_type"] == "password"


async def test_inspect_shows_the_generation_of_a_refresh_token(admin: Admin, http: httpx2.AsyncClient) -> None:
    first = (await PHONE_APP.log_in(http, ALICE)).json()["refresh_token"]
    assert await explain(admin, first) == "Valid: generation 1 is the newest refresh token of its session."

    second = (await PHONE_APP.refresh(http, first)).json()["refresh_token"]

    spent = "Used. In its grace period, it returns generation 2; after that, using it revokes the session."
    assert await explain(admin, first) == spent
    assert await explain(admin, second) == "Valid: generation 2 is the newest refresh token of its session."


async def test_inspect_tells_that_a_replay_ended_a_session(
    admin: Admin, http: httpx2.AsyncClient, clock: Clock
) -> None:
    first = (await PHONE_APP.log_in(http, ALICE)).json()["refresh_token"]
    second = (await PHONE_APP.refresh(http, first)).json()["refresh_token"]
    clock.advance(301)
    await PHONE_APP.refresh(http, first)

    inspection = (await admin("token", "inspect", second, "--json")).json

    ended = "Its session was revoked (generation 1 was reused while generation 2 was the newest) at "
    assert inspection["explanation"].startswith(ended)
    assert (inspection["active"], inspection["session_active"], inspection["end_reason"]) == (False, False, "replayed")
    assert inspection["reused_generation"] == 1


@pytest.mark.clause("decided-ended-families")
@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("user set-password alice@example.com", "password_set"),
        ("user update alice@example.com --remove-role enduser", "role_removed"),
        ("user disable alice@example.com", "user_disabled"),
        ("user delete alice@example.com", "user_deleted"),
        ("client update phone-app --remove-grant-type refresh_token", "client_changed"),
        ("client disable phone-app", "client_disabled"),
        ("client delete phone-app", "client_deleted"),
    ],
)
async def test_inspect_tells_which_change_ended_a_session(
    admin: Admin, http: httpx2.AsyncClient, words: str, cause: str
) -> None:
    token = (await PHONE_APP.log_in(http, ALICE)).json()["refresh_token"]
    assert (await admin(*words.split(), "--yes", typed="quite another password\n")).status == 0

    assert (await admin("token", "inspect", token, "--json")).json["end_reason"] == cause


async def test_inspect_distinguishes_the_other_ends(admin: Admin, http: httpx2.AsyncClient) -> None:
    revoked, everywhere, console = [(await PHONE_APP.log_in(http, ALICE)).json() for _ in range(3)]
    await PHONE_APP.revoke(http, revoked["refresh_token"])
    await admin("token", "revoke", console["refresh_token"])
    await http.post(REVOKE_ALL, headers={"Authorization": f"Bearer {everywhere['access_token']}"})

    ends = [await explain(admin, tokens["refresh_token"]) for tokens in (revoked, console, everywhere)]

    assert [end.partition(" at ")[0] for end in ends] == [
        "Its session was revoked (revoked)",
        "Its session was revoked (cli)",
        "Its session was revoked (revoke_all)",
    ]


@pytest.mark.clause("decided-client-lifetimes", "decided-too-old-stays-ended")
async def test_inspect_tells_that_a_session_is_too_old(admin: Admin, http: httpx2.AsyncClient, clock: Clock) -> None:
    token = (await PHONE_APP.log_in(http, ALICE)).json()["refresh_token"]
    assert (await admin("client", "update", "phone-app", "--session-max-age", "1m")).status == 0
    clock.advance(61)

    assert await explain(admin, token) == "Its session is older than the maximum age of 1 min: a refresh revokes it."
    await until_status(lambda: PHONE_APP.refresh(http, token), 400)

    assert (await admin("client", "update", "phone-app", "--no-session-max-age")).status == 0
    inspection = (await admin("token", "inspect", token, "--json")).json
    assert (inspection["active"], inspection["end_reason"]) == (False, "too_old")


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
async def test_console_revokes_tokens_of_any_client(admin: Admin, http: httpx2.AsyncClient, kind: str) -> None:
    tokens = (await WEB_SHOP.log_in(http, ALICE)).json()

    done = await admin("token", "revoke", tokens[kind], "--json")

    assert done.json == {"revoked": True, "client_id": "web-shop", "username": ALICE.username}
    assert not await is_live(http, tokens["access_token"])
    assert (await WEB_SHOP.refresh(http, tokens["refresh_token"])).status_code == (200 if kind[0] == "a" else 400)
    assert (await admin("token", "revoke", tokens[kind])).status == 1


async def test_inspected_token_is_not_sent_or_logged(
    admin: Admin, http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    tokens = (await PHONE_APP.log_in(http, ALICE)).json()
    for verb in ("inspect", "revoke"):
        for token in tokens.values():
            await admin("token", verb, str(token))

    dumped = b"".join(store.dump(key) or b"" for key in store.scan_iter())

    assert not any(tokens[kind].encode() in dumped for kind in ("access_token", "refresh_token"))
