"""`client list · show · create · rotate-secret · delete`."""

from __future__ import annotations

import httpx2
import pytest
import redis

from service.worker import Worker
from tests.admin.conftest import Admin
from tests.conftest import Clock, make_code
from tests.support.clients_and_users import ALICE, GATEWAY, MADE_SECRET, PHONE_APP, WEB_SHOP, OAuthClient
from tests.support.origins import is_origin

CREATED = (
    *("client", "create", "kiosk", "--name", "Kiosk", "--scope", "realm:main role:enduser", "--json"),
    *("--grant-type", "password", "--grant-type", "refresh_token"),
)


async def test_a_client_that_was_created_gets_tokens_with_the_secret_that_was_shown(
    admin: Admin, http: httpx2.AsyncClient
) -> None:
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


async def test_people_read_the_secret_in_a_line_of_its_own(admin: Admin) -> None:
    created = await admin(*(word for word in CREATED if word != "--json"))

    assert "✓ The client kiosk is registered." in created.output
    assert "client_secret: " in created.output
    assert "shown only once" in created.aside


async def test_a_public_client_has_no_secret(admin: Admin, http: httpx2.AsyncClient) -> None:
    created = await admin(*CREATED, "--public", "--require-pkce")

    assert "client_secret" not in created.json
    assert created.json["secret"] == "none"
    assert created.json["require_pkce"] is True
    assert (await OAuthClient("kiosk").log_in(http, ALICE)).status_code == 200


async def test_a_client_with_a_redirect_uri_gets_the_grants_that_go_with_it(admin: Admin) -> None:
    created = await admin("client", "create", "spa", "--redirect-uri", "https://spa.example/cb", "--json")

    assert created.json["grant_types"] == ["authorization_code", "refresh_token"]
    assert created.json["redirect_uris"] == ["https://spa.example/cb"]


async def test_a_gateway_that_was_created_may_introspect(admin: Admin, http: httpx2.AsyncClient) -> None:
    created = await admin("client", "create", "edge", "--introspect", "--json")
    tokens = (await PHONE_APP.log_in(http, ALICE)).json()

    answer = await OAuthClient("edge", created.json["client_secret"]).introspect(http, tokens["access_token"])

    assert answer.json()["active"] is True


async def test_every_mistake_is_told_at_once_and_nothing_is_registered(admin: Admin, store: redis.Redis) -> None:
    options = ("--redirect-uri", "shop/callback", "--scope", "realm:main role:king", "--introspect", "--public")

    refused = await admin("client", "create", "shop", *options)

    assert refused.status == 2
    assert refused.output == ""
    places = {line.removeprefix("Error: ").split(":")[0] for line in refused.aside.splitlines()}
    assert places == {"--redirect-uri", "--scope", "--introspect"}
    assert not store.exists("client:{registry}:shop")


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("client", "create", "web-shop"), 1, "the client web-shop already exists"),
        (("client", "create"), 2, "Missing argument 'ID'"),
        (("client", "create", "x", "--grant-type", "implicit"), 2, "'implicit' is not one of"),
        (("client", "show", "nobody"), 1, "there is no client nobody"),
        (("client", "rotate-secret", "nobody"), 1, "there is no client nobody"),
        (("client", "rotate-secret", "phone-app"), 1, "the client phone-app is public: it has no secret"),
        (
            ("client", "rotate-secret", "web-shop", "--overlap", "soon"),
            2,
            "'soon': expected seconds, or a number with s, m, h or d",
        ),
        (("client", "delete", "nobody"), 1, "there is no client nobody"),
        (("client", "delete", "web-shop"), 1, "no answer to the question; nothing was changed"),
        (("client", "shred", "web-shop"), 2, "No such command 'shred'"),
    ],
)
async def test_what_cannot_be_done_is_told_in_a_line(
    admin: Admin, store: redis.Redis, words: tuple[str, ...], status: int, message: str
) -> None:
    before = store.get("client:{registry}:web-shop")

    refused = await admin(*words)

    assert (refused.status, refused.output) == (status, "")
    assert message in refused.aside
    assert "Traceback" not in refused.aside
    assert store.get("client:{registry}:web-shop") == before


async def test_the_list_shows_all_clients_and_no_hash(admin: Admin) -> None:
    listed, table = await admin("client", "list", "--json"), await admin("client", "list")

    ids = ["auditor", "gateway", "made-secret", "phone-app", "reader", "web-shop"]
    assert [client["client_id"] for client in listed.json] == ids
    assert [line.split()[0] for line in table.output.splitlines()] == ["CLIENT", *ids]
    assert "argon2" not in listed.output + table.output
    assert {client["client_id"]: client["secret"] for client in listed.json} == dict.fromkeys(ids, "chosen") | {
        "phone-app": "none",
        "made-secret": "made",
    }


@pytest.mark.parametrize("client", [WEB_SHOP, MADE_SECRET])
@pytest.mark.clause("decided-secret-overlap")
async def test_the_old_secret_stays_good_for_the_overlap_and_no_longer(
    admin: Admin, http: httpx2.AsyncClient, clock: Clock, client: OAuthClient
) -> None:
    rotated = await admin("client", "rotate-secret", client.client_id, "--overlap", "24h", "--json")
    new = OAuthClient(client.client_id, rotated.json["client_secret"])

    assert rotated.json["previous_secret_until"]
    assert [(await each.log_in(http, ALICE)).status_code for each in (client, new)] == [200, 200]
    # A second more, because the tests let time pass slowly between two readings of Redis's clock.
    clock.advance(24 * 3600 + 1)
    assert [(await each.log_in(http, ALICE)).status_code for each in (client, new)] == [401, 200]


async def test_without_an_overlap_the_old_secret_ends_at_once(admin: Admin, http: httpx2.AsyncClient) -> None:
    assert (await WEB_SHOP.log_in(http, ALICE)).status_code == 200

    rotated = await admin("client", "rotate-secret", "web-shop", "--json", "--yes")

    new = OAuthClient("web-shop", rotated.json["client_secret"])
    assert rotated.json["previous_secret_until"] is None
    assert [(await each.log_in(http, ALICE)).status_code for each in (WEB_SHOP, new)] == [401, 200]


@pytest.mark.clause("decided-client-deleted")
async def test_a_deleted_client_is_gone_with_all_that_it_had(
    admin: Admin, http: httpx2.AsyncClient, worker: Worker
) -> None:
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


async def test_a_question_that_is_answered_with_no_changes_nothing(admin: Admin, http: httpx2.AsyncClient) -> None:
    refused = await admin("client", "delete", "web-shop", typed="n\n")

    assert (refused.status, refused.output) == (1, "")
    assert "Delete the client web-shop, and end all of its sessions?" in refused.aside
    assert (await WEB_SHOP.log_in(http, ALICE)).status_code == 200
    assert (await admin("client", "delete", "web-shop", typed="y\n")).status == 0
