"""PUT and DELETE /oauth2/v1/users/{username} over HTTP: a program creates, changes and deletes users of realm main."""

import asyncio
import io
import json
import re
from dataclasses import replace
from typing import Any

import httpx2
import msgspec
import pytest
import redis

from service.protocol.user import User, identify_user
from service.store.keys import user_key
from service.web.api.users import MEMBERS
from service.worker import Worker
from tests.support.clients_and_users import (
    ALICE,
    BACK_OFFICE,
    BOB,
    GATEWAY,
    PHONE_APP,
    USERS,
    WEB_SHOP,
    OAuthClient,
    UserCredentials,
    assert_error,
    delete_user,
    is_live,
    put_user,
    tokens_of,
)
from tests.support.events import events_of
from tests.support.loop_time import LoopTime

EVE = UserCredentials("eve@example.com", "a password of Eve's")
SIGN_UP: dict[str, Any] = {"password": EVE.password, "roles": ["enduser"], "name": "Eve"}
ONLY_NEW = {"If-None-Match": "*"}
ONLY_KNOWN = {"If-Match": "*"}
JSON = {"Content-Type": "application/json"}


def assert_done(response: httpx2.Response, status: int) -> None:
    assert response.status_code == status, response.text
    assert status == 204 or response.json().keys() == {"id"}
    assert response.headers["cache-control"] == "no-store, no-cache"
    assert ("content-type" in response.headers) is (status != 204)


def assert_refused(response: httpx2.Response, status: int, error: str, beginning: str) -> None:
    assert_error(response, status, error)
    assert response.json()["error_description"].startswith(beginning), response.text


async def find_user(worker: Worker, username: str) -> User | None:
    return await worker.registry.users.find(identify_user("main", username))


async def change_bob(worker: Worker, **changes: Any) -> None:
    """Change Bob as the console does."""
    bob = await find_user(worker, BOB.username)
    assert bob is not None
    await worker.registry.users.put(msgspec.structs.replace(bob, **changes))


@pytest.mark.clause("decided-managed-users")
async def test_a_user_is_created_changed_and_deleted(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    assert_done(await put_user(http, EVE.username, SIGN_UP), 201)
    tokens = tokens_of(await PHONE_APP.log_in(http, EVE))
    new = replace(EVE, password="another password of Eve's")

    assert_done(await put_user(http, EVE.username, {"password": new.password}), 200)
    assert not is_live(store, tokens["access_token"])
    assert_error(await PHONE_APP.refresh(http, tokens["refresh_token"]), 400, "invalid_grant")
    assert_error(await PHONE_APP.log_in(http, EVE), 400, "invalid_grant")
    tokens = tokens_of(await PHONE_APP.log_in(http, new))

    for _ in range(2):
        assert_done(await delete_user(http, EVE.username), 204)
        assert not is_live(store, tokens["access_token"])
        assert_error(await PHONE_APP.log_in(http, new), 400, "invalid_grant")
    assert_done(await put_user(http, EVE.username, SIGN_UP), 201)
    assert_error(await PHONE_APP.refresh(http, tokens["refresh_token"]), 400, "invalid_grant")


@pytest.mark.clause("decided-managed-users-changes")
@pytest.mark.parametrize(
    ("body", "is_ended"),
    [
        ({"password": BOB.password}, True),
        ({"roles": []}, True),
        ({"roles": ["partner"]}, True),
        ({"disabled": True}, True),
        ({"roles": ["partner", "enduser", "partner"], "name": "Robert", "disabled": False}, False),
    ],
    ids=str,
)
async def test_what_takes_rights_away_ends_all_sessions(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis, body: dict[str, Any], is_ended: bool
) -> None:
    token = tokens_of(await PHONE_APP.log_in(http, BOB))["access_token"]

    assert_done(await put_user(http, BOB.username, body), 200)

    assert is_live(store, token) is not is_ended
    bob = await find_user(worker, BOB.username)
    assert bob is not None
    assert bob.roles == tuple(dict.fromkeys(body.get("roles", ["enduser"])))
    assert bob.name == body.get("name", "Bob")


@pytest.mark.clause("decided-managed-users-changes")
async def test_a_change_to_what_is_so_changes_nothing(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis
) -> None:
    token = tokens_of(await PHONE_APP.log_in(http, BOB))["access_token"]
    key = user_key(identify_user("main", BOB.username))
    before, bob = store.hgetall(key), await find_user(worker, BOB.username)
    assert bob is not None
    same = {"password_hash": bob.password_hash, "roles": ["enduser", "enduser"], "name": "Bob", "disabled": False}

    for body in ({}, same):
        assert_done(await put_user(http, BOB.username, body), 200)

    assert store.hgetall(key) == before
    assert is_live(store, token)


ROLES_BEYOND = [
    pytest.param({}, {"roles": ["enduser", "admin"]}, id="gets admin"),
    pytest.param({"roles": ("admin",)}, {"name": "x"}, id="has admin"),
    pytest.param({"roles": ("enduser", "admin")}, {"roles": ["enduser"]}, id="loses admin"),
    pytest.param({"roles": ("admin",), "disabled": True}, {"disabled": False}, id="has admin, disabled"),
    pytest.param({"roles": ("device",)}, {"password": "a stolen account"}, id="has a reserved role"),
]


@pytest.mark.clause("decided-managed-users-roles")
@pytest.mark.parametrize(("before", "body"), ROLES_BEYOND)
async def test_a_role_beyond_the_client_is_out_of_reach(
    http: httpx2.AsyncClient, worker: Worker, before: dict[str, Any], body: dict[str, Any]
) -> None:
    await change_bob(worker, **before)
    found = await find_user(worker, BOB.username)

    assert_error(await put_user(http, BOB.username, body), 403, "unauthorized_client")
    assert_error(await put_user(http, BOB.username, body, headers=ONLY_NEW), 403, "unauthorized_client")
    if before:
        assert_error(await delete_user(http, BOB.username), 403, "unauthorized_client")
    assert_error(await put_user(http, EVE.username, SIGN_UP | {"roles": ["admin"]}), 403, "unauthorized_client")

    assert await find_user(worker, BOB.username) == found
    assert await find_user(worker, EVE.username) is None
    assert not await worker.registry.has_pending()


@pytest.mark.clause("decided-managed-users-roles")
async def test_a_client_without_scope_manages_users_without_roles(http: httpx2.AsyncClient, worker: Worker) -> None:
    client = await worker.registry.clients.find(BACK_OFFICE.client_id)
    assert client is not None
    await worker.registry.clients.put(msgspec.structs.replace(client, scope=""))

    assert_error(await put_user(http, EVE.username, SIGN_UP), 403, "unauthorized_client")
    assert_done(await put_user(http, EVE.username, SIGN_UP | {"roles": []}), 201)
    assert_error(await delete_user(http, BOB.username), 403, "unauthorized_client")
    assert_done(await delete_user(http, EVE.username), 204)


@pytest.mark.clause("decided-managed-users-roles")
async def test_a_role_added_meanwhile_counts(http: httpx2.AsyncClient, worker: Worker, store: redis.Redis) -> None:
    """The console adds a role while both requests wait for the lock, after all of their other checks."""
    async with worker.registry.make_lock():
        with store.monitor() as monitor:  # type: ignore[no-untyped-call]
            asked = [
                asyncio.create_task(put_user(http, BOB.username, {"password": "a stolen account"})),
                asyncio.create_task(delete_user(http, BOB.username)),
            ]
            holders = set[str]()
            while len(holders) < len(asked):
                command = (await asyncio.to_thread(monitor.next_command))["command"]
                holders |= {command.split()[2]} if command.startswith("SET lock:{registry}") else set()
        await change_bob(worker, roles=("enduser", "admin"))

    for response in await asyncio.gather(*asked):
        assert_error(response, 403, "unauthorized_client")
    assert (await PHONE_APP.log_in(http, BOB)).status_code == 200


@pytest.mark.clause("decided-managed-users-new-only")
async def test_if_none_match_allows_only_a_new_user(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    assert_done(await put_user(http, EVE.username, SIGN_UP, headers=ONLY_NEW), 201)
    token = tokens_of(await PHONE_APP.log_in(http, EVE))["access_token"]

    for value in ("*", " * "):  # the server does not strip the end
        refused = await put_user(http, EVE.username, SIGN_UP, headers={"If-None-Match": value})
        assert_error(refused, 412, "invalid_request")
    assert is_live(store, token)
    assert_error(await delete_user(http, EVE.username, headers=ONLY_NEW), 412, "invalid_request")
    assert is_live(store, token)
    assert_done(await delete_user(http, "nobody@example.com", headers=ONLY_NEW), 204)


@pytest.mark.clause("decided-managed-users-conditions")
async def test_if_match_allows_only_a_known_user(http: httpx2.AsyncClient, worker: Worker) -> None:
    for body in (SIGN_UP, {"name": "x"}, {}):
        assert_error(await put_user(http, EVE.username, body, headers=ONLY_KNOWN), 412, "invalid_request")
    assert_error(await delete_user(http, EVE.username, headers=ONLY_KNOWN), 412, "invalid_request")
    assert await find_user(worker, EVE.username) is None

    assert_error(await put_user(http, BOB.username, {}, headers=ONLY_KNOWN | ONLY_NEW), 412, "invalid_request")
    assert_done(await put_user(http, BOB.username, {"name": "Robert"}, headers=ONLY_KNOWN), 200)
    assert_done(await delete_user(http, BOB.username, headers=ONLY_KNOWN), 204)
    assert_error(await delete_user(http, BOB.username, headers=ONLY_KNOWN), 412, "invalid_request")


@pytest.mark.clause("decided-managed-users-conditions")
@pytest.mark.parametrize("name", ["If-Match", "If-None-Match", "Content-Range"])
@pytest.mark.parametrize(
    "values", [['"a tag"'], ['W/"*"'], ["0"], [""], ["*,"], ["*, *"], ["*", "*"], ['"a", *']], ids=str
)
async def test_any_other_condition_is_refused(
    http: httpx2.AsyncClient, worker: Worker, name: str, values: list[str]
) -> None:
    headers = [*BACK_OFFICE.basic.items(), *((name, value) for value in values)]
    bob = await find_user(worker, BOB.username)

    for username in (BOB.username, EVE.username):
        assert_error(await http.put(USERS + username, json=SIGN_UP, headers=headers), 400, "invalid_request")
        assert_error(await http.delete(USERS + username, headers=headers), 400, "invalid_request")
    assert await find_user(worker, BOB.username) == bob
    assert await find_user(worker, EVE.username) is None


@pytest.mark.clause("decided-managed-users-body")
@pytest.mark.parametrize(
    ("body", "description"),
    [
        ([], "Invalid user: the body: expected a mapping."),
        ({}, "The user does not exist. To create it, send a password or a password_hash."),
        (
            SIGN_UP | {"email": "x"},
            "Invalid user: email: unknown field; allowed fields: username, id, password,",
        ),
        (SIGN_UP | {"realm": "cep"}, "Invalid user: realm: unknown field"),
        (SIGN_UP | {'"é\\': 1}, "Invalid user: ???: unknown field"),
        (SIGN_UP | {"x" * 60_000: 1}, "Invalid user: xxx"),
        ({"password": 5}, "Invalid user: password: Expected "),
        ({"password": "short"}, "Invalid user: password: expected 8 to 1024 characters in one line."),
        ({"password_hash": "$argon2id$"}, "Invalid user: password_hash: begins with $argon2id$, "),
        (SIGN_UP | {"password_hash": "x"}, "Invalid user: password_hash: expected password or password_hash"),
        (SIGN_UP | {"roles": "enduser"}, "Invalid user: roles: Expected "),
        (SIGN_UP | {"roles": ["enduser", "king"]}, "Invalid user: roles[1]: expected one of enduser, "),
        (SIGN_UP | {"name": "a\nb"}, "Invalid user: name: expected at most 255 characters in one line"),
        (SIGN_UP | {"name": "ä" * 256}, "Invalid user: name: expected at most 255 characters in one line"),
        (SIGN_UP | {"disabled": "no"}, "Invalid user: disabled: Expected "),
        *((SIGN_UP | {name: None}, f"Invalid user: {name}: expected a value, not null") for name in MEMBERS),
    ],
    ids=lambda value: ascii(value)[:50],
)
async def test_a_malformed_user_is_refused_by_the_name_of_a_member(
    http: httpx2.AsyncClient, worker: Worker, body: object, description: str
) -> None:
    response = await put_user(http, EVE.username, body)

    assert_refused(response, 400, "invalid_request", description)
    assert re.fullmatch(r"[\x20-\x21\x23-\x5B\x5D-\x7E]{1,350}", response.json()["error_description"])
    assert await find_user(worker, EVE.username) is None


@pytest.mark.clause("decided-managed-users-names")
@pytest.mark.parametrize(
    "username",
    [
        "Zoë@Example.com",
        " a+b@example.com ",
        "a/b//c",
        "100%25@example.com",
        "a?b#c;d=e&f",
        "ß" * 255,
        "\U0001f600\ufffd",
    ],
)
async def test_the_path_may_hold_every_user_name(http: httpx2.AsyncClient, worker: Worker, username: str) -> None:
    credentials = UserCredentials(username, EVE.password)

    assert_done(await put_user(http, username, SIGN_UP), 201)
    user = await find_user(worker, username)
    assert user is not None
    assert user.username == identify_user("main", username).username
    assert_done(await put_user(http, user.username, {}), 200)
    assert (await PHONE_APP.log_in(http, credentials)).status_code == 200
    assert_done(await delete_user(http, username), 204)
    assert await find_user(worker, username) is None


@pytest.mark.clause("decided-managed-users-names")
async def test_what_a_path_may_hold_needs_no_escape(http: httpx2.AsyncClient) -> None:
    """A plus is no space here, as it is in a form."""
    username = "o'brien+a;b=c:d!$&()*,~@example.com"

    assert_done(await http.put(USERS + username, json=SIGN_UP, headers=BACK_OFFICE.basic), 201)
    assert (await PHONE_APP.log_in(http, UserCredentials(username, EVE.password))).status_code == 200


@pytest.mark.clause("decided-managed-users-names")
@pytest.mark.parametrize("path", ["%20", "a%E2%80%AEb", "a%E2%80%8Bb@example.com", "a%C2%A0b", "x" * 256])
async def test_a_name_that_no_user_can_have_is_refused(http: httpx2.AsyncClient, path: str) -> None:
    put = await http.put(USERS + path, json=SIGN_UP, headers=BACK_OFFICE.basic)
    deleted = await http.delete(USERS + path, headers=BACK_OFFICE.basic)

    for response in (put, deleted):
        assert_refused(response, 400, "invalid_request", "Invalid user: username: expected ")


@pytest.mark.clause("decided-managed-users-names")
@pytest.mark.parametrize(
    "path",
    [
        "",
        *("%2E", "%2e%2E", "a/b", "bob@example.com/", "/bob@example.com", "bob@example.com//"),
        *("bob@example.com%0A", "%0Abob@example.com", "bob@example.com%00", "a%0Bb", "bob@example.com%0D"),
        *("bob@example.com%", "bob%4", "bob%zz@example.com", "zo%EB@example.com", "%C3", "%ED%A0%80"),
        *("bob@example.com?force=1", "bob?b@example.com"),
    ],
)
async def test_the_name_is_one_segment_decoded_once(http: httpx2.AsyncClient, store: redis.Redis, path: str) -> None:
    users = sorted(store.scan_iter("user:*"))
    put = await http.put(USERS + path, json=SIGN_UP, headers=BACK_OFFICE.basic)
    deleted = await http.delete(USERS + path, headers=BACK_OFFICE.basic)

    for response in (put, deleted):
        assert_refused(response, 400, "invalid_request", "Invalid user: username: expected one percent-encoded seg")
    assert sorted(store.scan_iter("user:*")) == users


@pytest.mark.clause("decided-managed-users-order")
async def test_the_form_comes_before_the_client(http: httpx2.AsyncClient) -> None:
    async def put(content: bytes, query: str = "", **headers: str) -> httpx2.Response:
        sent = JSON | {name.replace("_", "-"): value for name, value in headers.items()}
        return await http.put(f"{USERS}x{query}", content=content, headers=sent)

    assert_error(await put(b"{"), 400, "invalid_request")
    assert_error(await put(b'{"disabled": true, "d\\u0069sabled": false}'), 400, "invalid_request")
    assert_error(await put(b"{}", Content_Type="text/plain"), 400, "invalid_request")
    assert_error(await put(b"{}", Content_Encoding="gzip"), 415, "invalid_request")
    assert_error(await put(b"{}".ljust(64 * 1024 + 1)), 413, "invalid_request")
    assert_error(await put(b"{}", "?client_secret=x"), 400, "invalid_request")
    assert_error(await put(b"{}"), 401, "invalid_client")
    assert_error(await http.delete(USERS + "x"), 401, "invalid_client")


@pytest.mark.clause("decided-managed-users-order", "decided-managed-users-right")
@pytest.mark.parametrize("client", [GATEWAY, WEB_SHOP, PHONE_APP], ids=lambda client: client.client_id)
async def test_only_a_client_with_the_right_may_manage_users(
    http: httpx2.AsyncClient, worker: Worker, client: OAuthClient
) -> None:
    wrong = OAuthClient(client.client_id, "wrong")

    assert_error(await put_user(http, "x", {"king": 1}, wrong), 401, "invalid_client")
    assert_error(await delete_user(http, "\0", wrong), 401, "invalid_client")
    assert_error(await put_user(http, "x", {"king": 1}, client), 403, "unauthorized_client")
    assert_error(await delete_user(http, BOB.username, client), 403, "unauthorized_client")
    assert await find_user(worker, BOB.username) is not None


@pytest.mark.clause("decided-managed-users-right")
async def test_a_public_client_has_no_right_to_manage_users(http: httpx2.AsyncClient, worker: Worker) -> None:
    """Only a record that was written past all checks could give it one."""
    client = await worker.registry.clients.find(PHONE_APP.client_id)
    assert client is not None
    await worker.registry.clients.put(msgspec.structs.replace(client, manage_users=True))

    assert_error(await put_user(http, EVE.username, SIGN_UP, PHONE_APP), 403, "unauthorized_client")


@pytest.mark.clause("decided-other-method", "decided-managed-users")
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "OPTIONS"])
async def test_no_user_can_be_read(http: httpx2.AsyncClient, method: str) -> None:
    response = await http.request(method, USERS + BOB.username, headers=BACK_OFFICE.basic)

    assert_error(response, 405, "invalid_request")
    assert sorted(response.headers["allow"].split(", ")) == ["DELETE", "PUT"]


@pytest.mark.clause("decided-managed-users-lock")
async def test_while_the_registry_is_locked_no_user_changes(
    http: httpx2.AsyncClient, worker: Worker, held_time: LoopTime
) -> None:
    async with worker.registry.make_lock():
        for request in (put_user(http, BOB.username, {"disabled": True}), delete_user(http, BOB.username)):
            response = await held_time.advance_until_done(request)
            assert_error(response, 503, "temporarily_unavailable")
            assert int(response.headers["retry-after"]) > 0

    assert (await PHONE_APP.log_in(http, BOB)).status_code == 200


@pytest.mark.clause("decided-managed-users-events")
async def test_each_change_is_an_event_of_the_client(http: httpx2.AsyncClient, json_logs: io.StringIO) -> None:
    requests = [
        put_user(http, EVE.username, SIGN_UP),
        put_user(http, EVE.username, {"name": "Eve Example"}),
        put_user(http, EVE.username, {"password": "another password", "disabled": True}),
        put_user(http, EVE.username, {"disabled": False}),
        put_user(http, EVE.username, {"disabled": False}),
        delete_user(http, EVE.username),
        delete_user(http, EVE.username),
        put_user(http, ALICE.username, {}),
        put_user(http, "x/healthz", SIGN_UP | {"roles": ["admin"]}),
    ]
    for request in requests:
        await request
    written = json_logs.getvalue()

    names = ("created", "updated", "password_set", "disabled", "enabled", "deleted")
    client = {"actor": "back-office", "client_id": "back-office", "reason": "client", "address": "203.0.113.7"}
    assert events_of(json_logs) == [
        (f"user_{name}", {"username": EVE.username, "realm": "main"} | client) for name in names
    ]
    assert "another password" not in written
    lines = [json.loads(line) for line in written.splitlines()]
    paths = [(line["path"], line["level"]) for line in lines if "path" in line]
    assert paths == len(requests) * [("/oauth2/v1/users/{username}", "info")]
