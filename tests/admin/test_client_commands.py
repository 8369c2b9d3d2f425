"""`client list · show · create · rotate-secret · delete`."""

import re

import httpx2
import pytest
import redis

from service.worker import Worker
from tests.admin.conftest import Admin
from tests.conftest import Clock, make_code
from tests.support.clients_and_users import (
    ALICE,
    GATEWAY,
    MADE_SECRET,
    PHONE_APP,
    WEB_SHOP,
    OAuthClient,
    put_user,
    revoke_user,
)
from tests.support.origins import is_origin
from tests.support.waiting import until_status

CREATED = (
    *("client", "create", "kiosk", "--name", "Kiosk", "--scope", "realm:main role:enduser", "--json"),
    *("--grant-type", "password", "--grant-type", "refresh_token"),
)


async def test_created_client_gets_tokens_with_the_shown_secret(admin: Admin, http: httpx2.AsyncClient) -> None:
    created = await admin(*CREATED)

    assert created.status == 0
    response = await OAuthClient("kiosk", created.json["client_secret"]).log_in(http, ALICE)
    assert response.status_code == 200


async def test_the_secret_is_shown_once_and_redis_never_sees_it(admin: Admin, store: redis.Redis) -> None:
    secret = (await admin(*CREATED)).json["client_secret"]

    assert len(secret) == 43
    assert secret not in (store.get("client:{registry}:kiosk") or "")
    shown = await admin("client", "show", "kiosk")
    assert secret not in shown.output
    assert "sha256:" not in shown.output
    rotated = await admin("client", "rotate-secret", "kiosk", "--yes")
    assert re.search("^client_secret: [A-Za-z0-9_-]{43}$", rotated.output, re.MULTILINE)


async def test_a_public_client_has_no_secret(admin: Admin, http: httpx2.AsyncClient) -> None:
    created = await admin(*CREATED, "--public", "--require-pkce")

    assert "client_secret" not in created.json
    assert created.json["secret"] == "none"
    assert created.json["require_pkce"] is True
    assert (await OAuthClient("kiosk").log_in(http, ALICE)).status_code == 200


async def test_a_redirect_uri_brings_the_grants_of_the_code_flow(admin: Admin) -> None:
    created = await admin("client", "create", "spa", "--redirect-uri", "https://spa.example/cb", "--json")

    assert created.json["grant_types"] == ["authorization_code", "refresh_token"]


async def test_a_gateway_that_was_created_may_introspect(admin: Admin, http: httpx2.AsyncClient) -> None:
    created = await admin("client", "create", "edge", "--introspect", "--json")
    tokens = (await PHONE_APP.log_in(http, ALICE)).json()

    answer = await OAuthClient("edge", created.json["client_secret"]).introspect(http, tokens["access_token"])

    assert answer.json()["active"] is True


async def test_the_right_to_revoke_users_is_given_and_taken(admin: Admin, http: httpx2.AsyncClient) -> None:
    created = await admin("client", "create", "hr", "--revoke-users", "--json")
    client, of_alice = OAuthClient("hr", created.json["client_secret"]), {"format": "email", "email": ALICE.username}

    assert (await revoke_user(http, of_alice, client)).status_code == 204
    assert (await admin("client", "update", "hr", "--no-revoke-users")).status == 0
    await until_status(lambda: revoke_user(http, of_alice, client), 403)


async def test_the_right_to_manage_users_is_given_and_taken(admin: Admin, http: httpx2.AsyncClient) -> None:
    words = ("--manage-users", "--scope", "realm:main role:enduser")
    created = await admin("client", "create", "hr", *words, "--json")
    client = OAuthClient("hr", created.json["client_secret"])

    assert (await put_user(http, "eve", {"password": "a long password"}, client)).status_code == 201
    assert (await admin("client", "update", "hr", "--no-manage-users")).status == 0
    await until_status(lambda: put_user(http, "eve", {}, client), 403)


async def test_the_list_shows_all_clients_and_no_hash(admin: Admin) -> None:
    listed, table = await admin("client", "list", "--json"), await admin("client", "list")

    ids = ["auditor", "back-office", "gateway", "made-secret", "phone-app", "reader", "web-shop"]
    assert [client["client_id"] for client in listed.json] == ids
    assert [line.split()[0] for line in table.output.splitlines()] == ["CLIENT", *ids]
    assert "argon2" not in listed.output + table.output
    assert {client["client_id"]: client["secret"] for client in listed.json} == dict.fromkeys(ids, "chosen") | {
        "phone-app": "none",
        "made-secret": "generated",
    }


@pytest.mark.parametrize("client", [WEB_SHOP, MADE_SECRET])
@pytest.mark.clause("decided-secret-overlap")
async def test_old_secret_is_valid_only_during_the_overlap(
    admin: Admin, http: httpx2.AsyncClient, clock: Clock, client: OAuthClient
) -> None:
    rotated = await admin("client", "rotate-secret", client.client_id, "--overlap", "24h", "--json")
    new = OAuthClient(client.client_id, rotated.json["client_secret"])

    assert rotated.json["previous_secret_until"]
    assert not {field for field in rotated.json if "hash" in field}
    assert [(await each.log_in(http, ALICE)).status_code for each in (client, new)] == [200, 200]
    # A second more, because the tests let time pass slowly between two readings of Redis's clock.
    clock.advance(24 * 3600 + 1)
    assert [(await each.log_in(http, ALICE)).status_code for each in (client, new)] == [401, 200]

    await admin("client", "rotate-secret", client.client_id, "--yes")
    assert (await new.log_in(http, ALICE)).status_code == 401


@pytest.mark.clause("decided-client-deleted")
async def test_deleting_a_client_ends_its_sessions(admin: Admin, http: httpx2.AsyncClient, worker: Worker) -> None:
    tokens = (await WEB_SHOP.log_in(http, ALICE)).json()
    others = (await PHONE_APP.log_in(http, ALICE)).json()
    await make_code(worker, client=WEB_SHOP, redirect_uri="https://shop.example/callback")

    deleted = await admin("client", "delete", "web-shop", "--yes", "--json")

    assert deleted.json == {"client_id": "web-shop", "deleted": True}
    assert (await WEB_SHOP.log_in(http, ALICE)).status_code == 401
    for token, is_live in ((tokens["access_token"], False), (others["access_token"], True)):
        assert (await GATEWAY.introspect(http, token)).json()["active"] is is_live
    assert [key async for keys in worker.redis.scan("code:*") for key in keys] == []
    assert not await is_origin(worker, "https://shop.example")
    assert (await admin("client", "show", "web-shop")).status == 1


async def test_answering_no_changes_nothing(admin: Admin, http: httpx2.AsyncClient) -> None:
    refused = await admin("client", "delete", "web-shop", typed="n\n")

    assert (refused.status, refused.output) == (1, "")
    assert "Delete client web-shop and revoke all of its sessions?" in refused.aside
    assert (await WEB_SHOP.log_in(http, ALICE)).status_code == 200
    assert (await admin("client", "delete", "web-shop", typed="y\n")).status == 0
