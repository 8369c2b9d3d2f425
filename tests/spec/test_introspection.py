"""POST /oauth2/v1/introspect over HTTP: the state of a token, for clients that may read it."""

import json
from dataclasses import replace
from typing import Any

import httpx2
import pytest
import redis

from service.protocol.client import Client
from service.protocol.user import identify_user
from service.store.keys import mark_key
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, make_code, serving
from tests.support.clients_and_users import (
    ALICE,
    AUDITOR,
    GATEWAY,
    INTROSPECT,
    PHONE_APP,
    PHONE_CALLBACK,
    WEB_SHOP,
    OAuthClient,
    assert_error,
    revoke_all,
    tokens_of,
)

KINDS = ("access_token", "refresh_token")
INACTIVE = b'{"active":false}'
SUBJECT = identify_user("main", ALICE.username).digest
WRONG_GATEWAY = replace(GATEWAY, client_secret="wrong")
STATE = ("access:*", "family:*", "index:*", "mark:*", "revoked:*", "code:*", "redeemed:*", "user:*")


def assert_inactive(response: httpx2.Response) -> None:
    assert (response.status_code, response.content) == (200, INACTIVE)
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store, no-cache"


async def describe(http: httpx2.AsyncClient, token: str, client: OAuthClient = AUDITOR) -> dict[str, Any]:
    """Return the members of the response for a live token. Fails if a member is repeated."""
    response = await client.introspect(http, token)
    pairs: list[tuple[str, Any]] = json.loads(response.content, object_pairs_hook=list)

    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store, no-cache"
    assert response.headers["pragma"] == "no-cache"
    assert len({name for name, _ in pairs}) == len(pairs)
    assert dict(pairs)["active"] is True
    return dict(pairs)


def read_seconds(store: redis.Redis) -> int:
    """Return the time of Redis, which token times use."""
    seconds, _ = store.time()
    return int(seconds)


def take_times(description: dict[str, Any]) -> tuple[int, int]:
    issued, expires = description.pop("iat"), description.pop("exp")
    assert (type(issued), type(expires)) == (int, int)
    return issued, expires


def dump_state(store: redis.Redis) -> tuple[dict[str, Any], list[int]]:
    """Return the value and the time to live of each key that belongs to users and their tokens."""
    keys = sorted(key for pattern in STATE for key in store.scan_iter(pattern))
    return {key: store.dump(key) for key in keys}, [store.pttl(key) for key in keys]


@pytest.mark.clause("7662-2.2-members", "7662-2.2-json", "7662-2.2-active", "decided-introspection-members")
@pytest.mark.clause("decided-introspection-issuer")
async def test_a_live_access_token_is_described(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    before = read_seconds(store)
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    for app in (GATEWAY, AUDITOR):
        description = await describe(http, access_token, app)
        issued, expires = take_times(description)

        assert description == {
            "active": True,
            "scope": "realm:main role:enduser",
            "client_id": "phone-app",
            "username": ALICE.username,
            "realm": "main",
            "token_type": "Bearer",
            "token_use": "access_token",
            "sub": SUBJECT,
            "iss": "http://127.0.0.1:8000",
        }
        assert before <= issued <= read_seconds(store)
        assert expires - issued in (600, 601)


@pytest.mark.clause("7662-2.2-members", "7662-2.2-active", "decided-introspection-members")
async def test_a_live_refresh_token_is_described_without_a_type(http: httpx2.AsyncClient) -> None:
    refresh_token = tokens_of(await WEB_SHOP.log_in(http, ALICE))["refresh_token"]

    description = await describe(http, refresh_token)
    issued, expires = take_times(description)

    assert description == {
        "active": True,
        "scope": "realm:main role:enduser",
        "client_id": "web-shop",
        "username": ALICE.username,
        "realm": "main",
        "token_use": "refresh_token",
        "sub": SUBJECT,
        "iss": "http://127.0.0.1:8000",
    }
    assert expires - issued in (2_592_000, 2_592_001)


async def test_narrowed_token_leaves_the_session_scope(http: httpx2.AsyncClient, worker: Worker) -> None:
    code = await make_code(worker, scope="realm:main role:enduser role:organisation")
    tokens = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))
    narrowed = tokens_of(await PHONE_APP.refresh(http, tokens["refresh_token"], scope="realm:main role:enduser"))

    assert (await describe(http, narrowed["access_token"]))["scope"] == "realm:main role:enduser"
    assert (await describe(http, narrowed["refresh_token"]))["scope"] == "realm:main role:enduser role:organisation"


@pytest.mark.clause("7662-2.2-inactive", "7662-2.3-no-error", "decided-introspection-inactive")
@pytest.mark.parametrize(
    "token",
    [
        pytest.param("x", id="nonsense"),
        pytest.param("tsat1_" + "0" * 47, id="an unknown access token"),
        pytest.param("tsrt1_" + "0" * 55, id="a forged refresh token"),
        pytest.param("é\x00\n", id="strange characters"),
    ],
)
async def test_foreign_token_is_inactive(http: httpx2.AsyncClient, token: str) -> None:
    assert_inactive(await AUDITOR.introspect(http, token))


@pytest.mark.clause("7662-2.2-inactive", "7662-4-all-checks", "decided-introspection-inactive")
async def test_a_token_that_has_expired_is_not_active(http: httpx2.AsyncClient, clock: Clock) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    clock.advance(600)

    assert_inactive(await AUDITOR.introspect(http, tokens["access_token"]))
    assert (await describe(http, tokens["refresh_token"]))["active"]
    clock.advance(2_592_000 - 600)
    assert_inactive(await AUDITOR.introspect(http, tokens["refresh_token"]))


@pytest.mark.clause("7662-4-all-checks", "decided-introspection-inactive")
@pytest.mark.parametrize(
    "shorter", [{"TOKEN_SERVICE_SESSION_MAX_AGE": "500"}, {"TOKEN_SERVICE_REFRESH_TOKEN_TTL": "20"}]
)
async def test_ended_session_is_inactive_despite_live_tokens(
    make_settings: MakeSettings, clock: Clock, registry: None, store: redis.Redis, shorter: dict[str, str]
) -> None:
    """The record of the family lives as long as its access tokens."""
    async with serving(make_settings(), clock) as http:
        first = tokens_of(await PHONE_APP.log_in(http, ALICE))
    clock.advance(480)
    async with serving(make_settings(**shorter), clock) as http:
        head = tokens_of(await PHONE_APP.refresh(http, first["refresh_token"]))["refresh_token"]
        _, expires = take_times(await describe(http, head))
        clock.advance(30)

        assert_inactive(await AUDITOR.introspect(http, head))
        assert (await describe(http, first["access_token"]))["active"]
        assert expires <= read_seconds(store) + 480 + 21
        assert_error(await PHONE_APP.refresh(http, head), 400, "invalid_grant")


@pytest.mark.clause("7662-2.2-inactive", "7662-4-all-checks", "decided-introspection-inactive")
async def test_a_revoked_token_is_not_active(http: httpx2.AsyncClient) -> None:
    first, second, third = [tokens_of(await PHONE_APP.log_in(http, ALICE)) for _ in range(3)]
    await PHONE_APP.revoke(http, first["access_token"])
    await PHONE_APP.revoke(http, second["refresh_token"])

    assert_inactive(await AUDITOR.introspect(http, first["access_token"]))
    assert (await describe(http, first["refresh_token"]))["active"]
    for kind in KINDS:
        assert_inactive(await AUDITOR.introspect(http, second[kind]))
        assert (await describe(http, third[kind]))["active"]
    await revoke_all(http, third["access_token"])
    for kind in KINDS:
        assert_inactive(await AUDITOR.introspect(http, third[kind]))


@pytest.mark.clause("7662-4-all-checks", "decided-i7-revocation-is-final")
async def test_token_covered_by_a_mark_is_inactive(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    """A revokeAll that was interrupted leaves such a mark."""
    refresh_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]
    shard = identify_user("main", ALICE.username).shard
    store.set(mark_key(shard, SUBJECT), (read_seconds(store) + 1) * 1000, px=60_000)

    assert_inactive(await AUDITOR.introspect(http, refresh_token))
    assert_error(await PHONE_APP.refresh(http, refresh_token), 400, "invalid_grant")


@pytest.mark.clause("decided-only-the-head-is-active")
async def test_only_the_head_of_a_family_is_active(http: httpx2.AsyncClient, clock: Clock) -> None:
    tokens = [tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]]
    for _ in range(3):
        clock.advance(10)
        tokens.append(tokens_of(await PHONE_APP.refresh(http, tokens[-1]))["refresh_token"])

    for spent in tokens[:-1]:
        assert_inactive(await AUDITOR.introspect(http, spent))
    assert (await describe(http, tokens[-1]))["active"]
    # Within the grace period a spent refresh token still buys an access token, and the newest one stays the newest.
    assert (await PHONE_APP.refresh(http, tokens[-2])).status_code == 200
    assert_inactive(await AUDITOR.introspect(http, tokens[-2]))
    assert (await describe(http, tokens[-1]))["active"]


@pytest.mark.clause("decided-generation-ahead-of-redis", "decided-i10-outage-is-not-theft")
async def test_refresh_token_lost_in_a_failover_is_active(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    """A gateway that took the token for inactive would end a session that a refresh still continues."""
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]
    second = tokens_of(await PHONE_APP.refresh(http, first))["refresh_token"]
    (key,) = store.scan_iter("family:*", count=1000)
    store.copy(key, f"kept:{key}")
    third = tokens_of(await PHONE_APP.refresh(http, second))["refresh_token"]
    store.copy(f"kept:{key}", key, replace=True)

    assert (await describe(http, third))["active"]
    assert_inactive(await AUDITOR.introspect(http, first))
    await PHONE_APP.refresh(http, third)
    assert_inactive(await AUDITOR.introspect(http, third))


@pytest.mark.clause("decided-introspection-right", "7662-2.2-inactive")
async def test_introspection_of_access_tokens_hides_refresh_tokens(http: httpx2.AsyncClient) -> None:
    refresh_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]

    assert_inactive(await GATEWAY.introspect(http, refresh_token))
    assert (await describe(http, refresh_token, AUDITOR))["active"]


@pytest.mark.clause("decided-introspection-changes-nothing")
async def test_introspection_changes_nothing(http: httpx2.AsyncClient, store: redis.Redis, clock: Clock) -> None:
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))
    second = tokens_of(await PHONE_APP.refresh(http, first["refresh_token"]))
    clock.advance(400)  # past the grace period, in which the first one may be spent again
    state, lives_ms = dump_state(store)

    for tokens in (first, second):
        for kind in KINDS:
            await AUDITOR.introspect(http, tokens[kind])
            await GATEWAY.introspect(http, tokens[kind])

    state_then, lives_ms_then = dump_state(store)
    assert state_then == state
    assert all(then <= before for then, before in zip(lives_ms_then, lives_ms, strict=True))
    assert (await PHONE_APP.refresh(http, second["refresh_token"])).status_code == 200


@pytest.mark.clause("7662-2.1-hint")
@pytest.mark.parametrize("hint", ["", "access_token", "refresh_token", "id_token", "é", "x" * 1000], ids=ascii)
async def test_a_hint_changes_nothing(http: httpx2.AsyncClient, hint: str) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))

    for kind in KINDS:
        assert (await AUDITOR.introspect(http, tokens[kind], token_type_hint=hint)).json()["token_use"] == kind
    assert_inactive(await AUDITOR.introspect(http, "x", token_type_hint=hint))


@pytest.mark.clause("7662-2.1-authorized", "7662-2.3-invalid-client", "7662-4-callers-authenticated")
@pytest.mark.parametrize("client", [WRONG_GATEWAY, OAuthClient("gateway"), OAuthClient("nobody")], ids=str)
async def test_introspection_needs_client_authentication(http: httpx2.AsyncClient, client: OAuthClient) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    response = await client.introspect(http, access_token)

    assert_error(response, 401, "invalid_client")
    assert response.headers["www-authenticate"].startswith("Basic realm=")


@pytest.mark.clause("decided-introspection-right", "7662-4-callers-authorized")
@pytest.mark.parametrize("client", [WEB_SHOP, PHONE_APP], ids=["with a secret", "public"])
async def test_introspecting_own_tokens_needs_the_right(http: httpx2.AsyncClient, client: OAuthClient) -> None:
    tokens = tokens_of(await client.log_in(http, ALICE))

    for token in (tokens["access_token"], tokens["refresh_token"], "x"):
        assert_error(await client.introspect(http, token), 403, "unauthorized_client")


@pytest.mark.clause("decided-introspection-right")
async def test_the_right_is_worth_nothing_without_a_secret(http: httpx2.AsyncClient, worker: Worker) -> None:
    await worker.registry.clients.put(Client(client_id="careless", introspect="all"))

    assert_error(await OAuthClient("careless").introspect(http, "x"), 403, "unauthorized_client")


@pytest.mark.clause("decided-introspection-order", "7662-2.1-token-required", "decided-empty-parameter-omitted")
async def test_the_checks_are_form_client_token_right(http: httpx2.AsyncClient) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    wrong = WRONG_GATEWAY.credentials

    assert_error(await http.post(INTROSPECT, content=b"x=%zz", headers=headers), 400, "invalid_request")
    assert_error(await http.post(INTROSPECT, json=wrong), 400, "invalid_request")
    assert_error(await http.post(INTROSPECT, data={**wrong, "token": ["x", "x"]}), 400, "invalid_request")
    assert_error(await http.post(f"{INTROSPECT}?token=x", data=wrong), 400, "invalid_request")
    assert_error(await http.post(INTROSPECT, data=wrong), 401, "invalid_client")
    assert_error(await http.post(INTROSPECT, data=WEB_SHOP.credentials | {"token": ""}), 400, "invalid_request")
    assert_error(await http.post(INTROSPECT, data=WEB_SHOP.credentials | {"token": "x"}), 403, "unauthorized_client")
