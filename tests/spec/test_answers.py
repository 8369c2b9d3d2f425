"""The form of responses over HTTP: fields, headers and error bodies."""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
import redis

from service.protocol.user import identify_user
from service.store.keys import login_key
from service.worker import Worker
from tests.conftest import make_code
from tests.support.clients_and_users import (
    ALICE,
    GATEWAY,
    PHONE_APP,
    PHONE_CALLBACK,
    REVOKE,
    REVOKE_ALL,
    TOKEN,
    OAuthClient,
    assert_error,
    bearer,
    login_form,
    revoke_all,
    tokens_of,
)

FIELDS = {"access_token", "expires_in", "scope", "refresh_token", "token_type"}
NQSCHAR = re.compile(r"[\x20\x21\x23-\x5B\x5D-\x7E]+")


def read_flat_object(response: httpx2.Response) -> dict[str, Any]:
    """Return the body's members. Fails if a member is repeated or holds another object."""
    pairs: list[tuple[str, Any]] = json.loads(response.content, object_pairs_hook=list)

    assert len({name for name, _ in pairs}) == len(pairs)
    assert all(isinstance(value, str | int) for _, value in pairs)
    return dict(pairs)


def assert_never_cached(response: httpx2.Response) -> None:
    assert response.headers["cache-control"] == "no-store, no-cache"
    assert response.headers["pragma"] == "no-cache"


async def grant_by_password(http: httpx2.AsyncClient, _: Worker) -> httpx2.Response:
    return await PHONE_APP.log_in(http, ALICE)


async def grant_by_code(http: httpx2.AsyncClient, worker: Worker) -> httpx2.Response:
    return await PHONE_APP.exchange(http, await make_code(worker), PHONE_CALLBACK)


async def grant_by_refresh(http: httpx2.AsyncClient, worker: Worker) -> httpx2.Response:
    return await PHONE_APP.refresh(http, tokens_of(await grant_by_password(http, worker))["refresh_token"])


async def grant_by_replay(http: httpx2.AsyncClient, worker: Worker) -> httpx2.Response:
    refresh_token = tokens_of(await grant_by_password(http, worker))["refresh_token"]
    await PHONE_APP.refresh(http, refresh_token)
    return await PHONE_APP.refresh(http, refresh_token)


@pytest.mark.clause(
    "spec-2.1-all-fields", "spec-2.1-expires-in-integer", "spec-2.1-token-type-bearer", "6819-4.6.6-confidential-cache"
)
@pytest.mark.clause("spec-4.2-answer", "spec-2.1-content-type", "spec-2.1-cache-headers", "6749-5.1-access-token")
@pytest.mark.clause("6749-5.1-token-type", "6749-5.1-scope", "6749-5.1-status-and-json", "6749-5.1-no-store")
@pytest.mark.clause("6749-5.1-pragma", "6749-5.1-expires-in", "6749-3.2-response-member-once")
@pytest.mark.clause("6750-5.3-no-token-in-cookie", "spec-1-three-grants", "spec-1-short-access-long-refresh")
@pytest.mark.parametrize("grant", [grant_by_password, grant_by_code, grant_by_refresh, grant_by_replay])
async def test_every_grant_has_the_same_answer(
    http: httpx2.AsyncClient, worker: Worker, grant: Callable[[httpx2.AsyncClient, Worker], Awaitable[httpx2.Response]]
) -> None:
    response = await grant(http, worker)
    body = read_flat_object(response)

    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert_never_cached(response)
    assert set(body) == FIELDS
    assert body["token_type"] == "Bearer"
    assert type(body["expires_in"]) is int
    assert body["expires_in"] == 600
    assert body["scope"] == "realm:main role:enduser"
    assert "set-cookie" not in response.headers


@pytest.mark.clause("spec-2.4-error-body", "spec-7.1-standard-format", "6749-5.2-json", "6749-5.2-error-characters")
@pytest.mark.clause("6749-5.2-description-characters", "decided-error-description", "spec-7.2-no-own-codes")
@pytest.mark.clause("decided-cache-headers-everywhere", "6749-5.2-status-400", "6749-3.2-response-member-once")
@pytest.mark.clause("6749-5.2-unsupported-grant-type", "decided-unsupported-grant-type-400")
@pytest.mark.clause("spec-7.7-mapping", "spec-7.6-statuses", "decided-error-statuses", "6750-5.3-no-token-in-cookie")
@pytest.mark.parametrize(
    ("client", "form", "status", "error"),
    [
        (PHONE_APP, {}, 400, "invalid_request"),
        (PHONE_APP, {"grant_type": "client_credentials"}, 400, "unsupported_grant_type"),
        (PHONE_APP, {"grant_type": "implicit\r\nX-Evil: 1"}, 400, "unsupported_grant_type"),
        (OAuthClient("nobody"), {"grant_type": "password"}, 401, "invalid_client"),
        (GATEWAY, login_form(ALICE), 400, "unauthorized_client"),
        (PHONE_APP, login_form(ALICE, 'a "quoted" \\ scope é'), 400, "invalid_scope"),
        (PHONE_APP, {"grant_type": "refresh_token", "refresh_token": '"\\é'}, 400, "invalid_grant"),
        (PHONE_APP, {"grant_type": "authorization_code", "code": "x", "redirect_uri": "x"}, 400, "invalid_grant"),
    ],
)
async def test_refusals_are_flat_json_in_allowed_characters(
    http: httpx2.AsyncClient, client: OAuthClient, form: dict[str, str], status: int, error: str
) -> None:
    response = await http.post(TOKEN, data=client.credentials | form)
    body = read_flat_object(response)

    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert_never_cached(response)
    assert set(body) == {"error", "error_description"}
    assert body["error"] == error
    assert NQSCHAR.fullmatch(body["error_description"])
    assert "set-cookie" not in response.headers


@pytest.mark.clause("decided-description-tells-no-secret", "6749-10.14-input-validated")
async def test_an_error_repeats_nothing_that_was_sent(http: httpx2.AsyncClient) -> None:
    marker = "zzmarkerzz"
    forms = [
        {"client_id": marker, "client_secret": marker},
        PHONE_APP.credentials | {"grant_type": marker},
        PHONE_APP.credentials | login_form(ALICE) | {"username": marker, "password": marker},
        PHONE_APP.credentials | {"grant_type": "refresh_token", "refresh_token": marker},
        PHONE_APP.credentials | {"grant_type": "authorization_code", "code": marker, "redirect_uri": marker},
    ]
    responses = [await http.post(TOKEN, data=form) for form in forms]
    responses += [await http.post(f"{TOKEN}?password={marker}"), await revoke_all(http, marker), await http.get(marker)]

    assert all(response.status_code >= 400 for response in responses)
    assert not [response for response in responses if marker in response.text + str(response.headers)]


@pytest.mark.clause("decided-revoke-answer", "decided-cache-headers-everywhere")
@pytest.mark.parametrize(
    ("accept", "content"),
    [
        ("*/*", b""),
        ("text/html, application/*", b""),
        ("application/json", b"{}"),
        ("text/plain, Application/JSON ; charset=utf-8 ; q=0.9, */*", b"{}"),
        ("application/json;q=0, */*", b""),
        ("application/json; Q=0.000", b""),
    ],
)
async def test_a_caller_that_accepts_json_gets_an_empty_object(
    http: httpx2.AsyncClient, accept: str, content: bytes
) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]
    form, headers = PHONE_APP.credentials | {"token": "x"}, {"Accept": accept}
    responses = [
        await http.post(REVOKE, data=form, headers=headers),
        await http.post(REVOKE_ALL, headers=bearer(access_token) | headers),
    ]

    for response in responses:
        assert (response.status_code, response.content) == (200, content)
        assert response.headers.get("content-type") == ("application/json" if content else None)
        assert_never_cached(response)


@pytest.mark.clause("decided-server-error", "decided-error-statuses", "decided-error-description")
async def test_anything_unforeseen_is_a_server_error_without_a_trace(
    http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    store.set(login_key(identify_user(ALICE.realm, ALICE.username)), "not a number")
    answer = await PHONE_APP.log_in(http, ALICE)

    assert_error(answer, 500, "server_error")
    assert set(answer.json()) == {"error", "error_description"}
    assert not re.search(r"Traceback|record|line|redis|lua", answer.text, re.IGNORECASE)
