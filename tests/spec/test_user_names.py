"""Ids and names of users over HTTP: the id is the `sub`, and a renamed user keeps it."""

import httpx2
import pytest
import redis

from service.protocol.user import identify_user
from service.redis_client.script import Argument, Script
from service.store.keys import id_key
from service.worker import Worker
from tests.conftest import make_code
from tests.support.browser import SESSIONS, Browser, is_login_page
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    GATEWAY,
    PHONE_APP,
    PHONE_CALLBACK,
    UserCredentials,
    assert_error,
    delete_user,
    is_live,
    name_subject,
    put_user,
    revoke_user,
    tokens_of,
    verify,
)

pytestmark = pytest.mark.clause("decided-user-ids", "decided-user-renames")

EVE = UserCredentials("eve@example.com", "a password of Eve's")
SIGN_UP = {"password": EVE.password, "roles": ["enduser"]}
ROBERT = UserCredentials("robert@example.com", BOB.password)


async def log_in(http: httpx2.AsyncClient, user: UserCredentials) -> str:
    return tokens_of(await PHONE_APP.log_in(http, user))["access_token"]


async def get_sub(http: httpx2.AsyncClient, user: UserCredentials) -> str:
    """Return the `sub` after a login. All that tell it agree."""
    token = await log_in(http, user)
    told: str = (await GATEWAY.introspect(http, token)).json()["sub"]
    assert (await verify(http, token)).headers["x-auth-subject"] == told
    return told


async def rename(http: httpx2.AsyncClient, old: UserCredentials, new: str, **fields: object) -> httpx2.Response:
    return await put_user(http, old.username, {"username": new, **fields})


async def test_a_name_that_is_created_again_is_another_user(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    subs = []
    for _ in range(2):
        created = await put_user(http, EVE.username, SIGN_UP)
        subs.append(await get_sub(http, EVE))
        assert (created.status_code, created.json()) == (201, {"id": subs[-1]})
        assert store.get(id_key(subs[-1])) == identify_user("main", EVE.username).digest
        await delete_user(http, EVE.username)
        assert not store.exists(id_key(subs[-1]))
    assert subs[0] != subs[1]


async def test_a_given_id_is_the_sub(http: httpx2.AsyncClient) -> None:
    given = "urn:customer:{1}/~$"
    created = await put_user(http, EVE.username, SIGN_UP | {"id": given})
    assert (created.status_code, created.json()) == (201, {"id": given})
    assert await get_sub(http, EVE) == given
    changed = await put_user(http, EVE.username, {"id": given, "name": "Eve"})
    assert (changed.status_code, changed.json()) == (200, {"id": given})


async def test_an_id_never_changes_and_is_never_shared(http: httpx2.AsyncClient, worker: Worker) -> None:
    await put_user(http, EVE.username, SIGN_UP | {"id": "e"})
    token = await log_in(http, EVE)
    taken = await put_user(http, "ann@example.com", SIGN_UP | {"id": "e"})
    changed = await put_user(http, EVE.username, SIGN_UP | {"id": "other"})

    assert_error(taken, 409, "invalid_request")
    assert taken.json()["error_description"] == "Another user has this id."
    assert_error(changed, 400, "invalid_request")
    assert changed.json()["error_description"].startswith("Invalid user: id: differs from the user's id")
    assert await worker.registry.users.find(identify_user("main", "ann@example.com")) is None
    assert (await verify(http, token)).headers["x-auth-subject"] == "e"


@pytest.mark.parametrize("user_id", ["", "~e", "a b", "100%", "é", "x" * 129])
async def test_a_malformed_id_is_refused(http: httpx2.AsyncClient, user_id: str) -> None:
    assert_error(await put_user(http, EVE.username, SIGN_UP | {"id": user_id}), 400, "invalid_request")


async def test_a_rename_ends_all_and_keeps_the_sub(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis
) -> None:
    browser = Browser(http)
    await browser.sign_in(BOB)
    sub, code = await get_sub(http, BOB), await make_code(worker, BOB)
    tokens = tokens_of(await PHONE_APP.log_in(http, BOB))

    renamed = await rename(http, BOB, "Robert@Example.com")

    assert (renamed.status_code, renamed.json()) == (200, {"id": sub})
    assert not is_live(store, tokens["access_token"])
    assert_error(await PHONE_APP.refresh(http, tokens["refresh_token"]), 400, "invalid_grant")
    assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")
    assert_error(await PHONE_APP.log_in(http, BOB), 400, "invalid_grant")
    assert is_login_page(await browser.open(SESSIONS))
    assert await get_sub(http, ROBERT) == sub
    user = await worker.registry.users.find(identify_user("main", ROBERT.username))
    assert user is not None
    assert (user.username, user.roles, user.name) == (ROBERT.username, ("enduser",), "Bob")


async def test_a_rename_may_change_other_fields_too(http: httpx2.AsyncClient) -> None:
    new = UserCredentials(ROBERT.username, "another password of Bob's")
    assert (await rename(http, BOB, new.username, password=new.password)).status_code == 200
    assert (await PHONE_APP.log_in(http, new)).status_code == 200
    assert_error(await PHONE_APP.log_in(http, ROBERT), 400, "invalid_grant")


async def test_the_former_name_is_free_for_another_user(http: httpx2.AsyncClient) -> None:
    sub = await get_sub(http, BOB)
    await rename(http, BOB, ROBERT.username)
    assert (await put_user(http, BOB.username, SIGN_UP)).status_code == 201
    assert await get_sub(http, UserCredentials(BOB.username, EVE.password)) != sub
    assert await get_sub(http, ROBERT) == sub


async def test_a_taken_name_is_refused_and_nothing_ends(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    token = await log_in(http, BOB)
    for new in (ALICE.username, " ALICE@example.com"):
        refused = await rename(http, BOB, new)
        assert_error(refused, 409, "invalid_request")
        assert refused.json()["error_description"] == "Another user has this username."
    assert is_live(store, token)
    assert (await PHONE_APP.log_in(http, BOB)).status_code == 200


async def test_only_a_user_who_exists_is_renamed(http: httpx2.AsyncClient, worker: Worker) -> None:
    for fields in ({}, SIGN_UP):
        assert_error(await rename(http, EVE, ROBERT.username, **fields), 404, "invalid_request")
    for name in (EVE.username, ROBERT.username):
        assert await worker.registry.users.find(identify_user("main", name)) is None


@pytest.mark.parametrize("spelling", [" BOB@Example.com", BOB.username])
async def test_a_name_of_the_same_form_is_no_rename(
    http: httpx2.AsyncClient, store: redis.Redis, worker: Worker, spelling: str
) -> None:
    token = await log_in(http, BOB)
    answer = await rename(http, BOB, spelling, name="Robert")
    assert (answer.status_code, answer.json()) == (200, {"id": identify_user("main", BOB.username).digest})
    assert is_live(store, token)
    user = await worker.registry.users.find(identify_user("main", BOB.username))
    assert user is not None
    assert (user.username, user.name) == (BOB.username, "Robert")


async def test_a_revocation_by_id_finds_the_renamed_user(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    sub = await get_sub(http, BOB)
    await rename(http, BOB, ROBERT.username)
    await put_user(http, BOB.username, SIGN_UP)
    token, other = await log_in(http, ROBERT), await log_in(http, UserCredentials(BOB.username, EVE.password))

    assert (await revoke_user(http, name_subject(sub))).status_code == 204

    assert not is_live(store, token)
    assert is_live(store, other)


async def test_a_rename_during_a_revocation_saves_no_session(
    http: httpx2.AsyncClient, http_worker: Worker, store: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole rename and a login come between the lookup of the id and the revocation."""
    sub, tokens, run = await get_sub(http, BOB), list[str](), http_worker.redis.run

    async def rename_before(script: Script, **values: Argument) -> list[str | int]:
        if script.name == "revoke_all" and not tokens:
            tokens.append("")  # the rename runs this script as well
            await rename(http, BOB, ROBERT.username)
            tokens[0] = await log_in(http, ROBERT)
        return await run(script, **values)

    monkeypatch.setattr(http_worker.redis, "run", rename_before)
    assert (await revoke_user(http, name_subject(sub))).status_code == 204
    assert not is_live(store, tokens[0])


async def test_the_id_of_a_deleted_user_ends_nothing_of_the_next(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis
) -> None:
    """The deletion was interrupted before it removed the key of the id."""
    created = await put_user(http, EVE.username, SIGN_UP)
    await delete_user(http, EVE.username)
    await worker.registry.ids.put(created.json()["id"], identify_user("main", EVE.username))
    await put_user(http, EVE.username, SIGN_UP)
    token = await log_in(http, EVE)

    assert (await revoke_user(http, name_subject(created.json()["id"]))).status_code == 204
    assert is_live(store, token)
