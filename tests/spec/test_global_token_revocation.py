"""POST /oauth2/v1/global-token-revocation over HTTP: another system revokes everything of a user."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx2
import pytest
import redis

from service.protocol.client import Client
from service.protocol.provider import IdentityProvider
from service.protocol.user import identify_user
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, make_code, serving
from tests.support.browser import Browser
from tests.support.clients_and_users import (
    ALICE,
    BACK_OFFICE,
    BOB,
    GATEWAY,
    GLOBAL_REVOCATION,
    MADE_SECRET,
    METER,
    PHONE_APP,
    PHONE_CALLBACK,
    WEB_SHOP,
    OAuthClient,
    UserCredentials,
    assert_error,
    is_live,
    name_subject,
    revoke_user,
    tokens_of,
)

BASE_URL = "http://127.0.0.1:8000"
ISSUER = "https://login.example.org/"
SUBJECT = identify_user("main", ALICE.username).subject
CAROL = UserCredentials("248289761001", "", "cep")
OF_ALICE = (
    {"format": "opaque", "id": SUBJECT},
    {"format": "iss_sub", "iss": BASE_URL, "sub": SUBJECT},
    {"format": "email", "email": ALICE.username},
    {"format": "email", "email": " ALICE@Example.com\u200b"},
)


def assert_done(response: httpx2.Response) -> None:
    assert (response.status_code, response.content) == (204, b""), response.text
    assert response.headers["cache-control"] == "no-store, no-cache"
    assert "content-type" not in response.headers
    assert "access-control-allow-origin" not in response.headers


async def put_cep(worker: Worker, **changes: str) -> None:
    named = {"client_id": "token-service", "issuer": ISSUER, "jwks_uri": "https://login.example.org/keys"}
    await worker.registry.put_realm("cep", IdentityProvider(**(named | changes)))


@pytest.mark.clause("9493-3.2.2-email", "9493-3.2.3-issuer-and-subject", "9493-3.2.4-opaque")
@pytest.mark.clause("decided-global-revocation-covers", "decided-global-revocation-identifiers")
@pytest.mark.parametrize("sub_id", OF_ALICE, ids=lambda sub_id: sub_id["format"])
async def test_everything_of_the_user_ends(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis, sub_id: dict[str, str]
) -> None:
    sessions = [(client, tokens_of(await client.log_in(http, ALICE))) for client in (PHONE_APP, WEB_SHOP, MADE_SECRET)]
    of_bob = tokens_of(await PHONE_APP.log_in(http, BOB))
    code = await make_code(worker)

    assert_done(await revoke_user(http, sub_id))

    for client, tokens in sessions:
        assert not is_live(store, tokens["access_token"])
        assert_error(await client.refresh(http, tokens["refresh_token"]), 400, "invalid_grant")
    assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")
    assert is_live(store, of_bob["access_token"])
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
