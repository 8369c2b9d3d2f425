"""`client update · disable · enable` and `user update · unlock`: only what is named changes."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import redis

from service.crypto.keyring import hash_generated_secret
from service.protocol.user import identify_user
from service.redis_client.lock import LOCK_PAUSE_SECONDS
from service.registry.editor import ChangeRefused, RegistryEditor, replacing
from service.store.keys import registry_key
from service.worker import Worker
from tests.admin.conftest import Admin
from tests.conftest import SEED, make_code
from tests.registry.contents import find_client
from tests.support.clients_and_users import ALICE, BOB, PHONE_APP, WEB_SHOP, OAuthClient, UserCredentials, is_live
from tests.support.loop_time import LoopTime
from tests.support.waiting import until


async def show(admin: Admin, kind: str, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = (await admin(kind, "show", name, "--json")).json
    return shown


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (("--add-redirect-uri", "https://x.example/y"), {"redirect_uris": ["WAS", "https://x.example/y"]}),
        (("--redirect-uri", "https://x.example/y"), {"redirect_uris": ["https://x.example/y"]}),
        (("--add-scope", "role:admin"), {"scope": "realm:main role:enduser role:partner role:admin"}),
        (("--add-cors-origin", "ionic://localhost"), {"cors_origins": ["ionic://localhost"]}),
        (("--introspect-all",), {"introspect": "all"}),
        (("--revoke-users",), {"revoke_users": True}),
        (
            ("--access-token-ttl", "1.5m", "--refresh-token-ttl", "0.25", "--refresh-grace", "0"),
            {"access_token_ttl": 90, "refresh_token_ttl": 0.25, "refresh_grace": 0},
        ),
        (("--default-scope", "realm:main"), {"default_scope": "realm:main"}),
    ],
)
async def test_only_named_fields_change(admin: Admin, words: tuple[str, ...], changes: dict[str, Any]) -> None:
    before = await show(admin, "client", "web-shop")
    expected = before | {
        name: [*before[name], *value[1:]] if isinstance(value, list) and value[0] == "WAS" else value
        for name, value in changes.items()
    }

    changed = await admin("client", "update", "web-shop", *words, "--json")

    assert (changed.status, changed.json) == (0, expected)
    assert await show(admin, "client", "web-shop") == expected


async def test_an_update_keeps_the_overlap_of_a_rotated_secret(admin: Admin, http: httpx2.AsyncClient) -> None:
    await admin("client", "rotate-secret", "web-shop", "--overlap", "24h")
    await admin("client", "update", "web-shop", "--name", "Another")

    assert (await WEB_SHOP.log_in(http, ALICE)).status_code == 200
    again = await admin("client", "rotate-secret", "web-shop", "--overlap", "24h")
    assert (again.status, "The secret before the last rotation of web-shop is valid until" in again.aside) == (1, True)
    assert (await WEB_SHOP.log_in(http, ALICE)).status_code == 200


async def test_concurrent_updates_are_never_lost_silently(worker: Worker, registry: None, held_time: LoopTime) -> None:
    """Each adds another redirect URI to the same record. One that came too late is refused, and says so."""
    editor = RegistryEditor(worker.registry, worker.pending_revocations, {"actor": "somebody", "reason": "cli"})
    old = await find_client(worker, "web-shop")
    uris = [f"https://shop.example/{number}" for number in range(50)]

    async def add(uri: str) -> None:
        new = msgspec.structs.replace(old, redirect_uris=(*old.redirect_uris, uri))
        await editor.change_client(old.client_id, replacing(old, new))

    adding = asyncio.gather(*map(add, uris), return_exceptions=True)

    def are_done() -> bool:
        """End the pause of those that wait for the lock, and return True once all have ended."""
        if held_time.is_due_in(LOCK_PAUSE_SECONDS):
            held_time.advance(LOCK_PAUSE_SECONDS)
        return adding.done()

    await until(are_done, "fifty updates")
    ends = adding.result()
    added = [uri for uri, end in zip(uris, ends, strict=True) if end is None]
    refusals = {str(end) for end in ends if isinstance(end, ChangeRefused)}

    assert refusals == {"the record was changed at the same time; run the command again"}
    assert len(added) == 1
    assert (await find_client(worker, "web-shop")).redirect_uris == (*old.redirect_uris, *added)


@pytest.mark.clause("decided-client-disabled")
async def test_disabling_a_client_refuses_it_and_ends_its_sessions(
    admin: Admin, http: httpx2.AsyncClient, worker: Worker, store: redis.Redis
) -> None:
    tokens = (await WEB_SHOP.log_in(http, ALICE)).json()
    others = (await PHONE_APP.log_in(http, ALICE)).json()
    await make_code(worker, client=WEB_SHOP, redirect_uri="https://shop.example/callback")
    assert (await admin("client", "disable", "web-shop")).status == 1

    disabled = await admin("client", "disable", "web-shop", "--yes", "--json")

    assert disabled.json == {"client_id": "web-shop", "disabled": True}
    refused = await WEB_SHOP.log_in(http, ALICE)
    unknown = await OAuthClient("nobody", WEB_SHOP.client_secret).log_in(http, ALICE)
    assert (refused.status_code, refused.json()) == (unknown.status_code, unknown.json())
    assert (await WEB_SHOP.refresh(http, tokens["refresh_token"])).json()["error"] == "invalid_client"
    assert not is_live(store, tokens["access_token"])
    assert is_live(store, others["access_token"])
    assert [key async for keys in worker.redis.scan("code:*") for key in keys] == []
    query = {"response_type": "code", "client_id": "web-shop", "redirect_uri": "https://shop.example/callback"}
    pages = [await http.get("/authorization/", params=query | {"client_id": name}) for name in ("web-shop", "nobody")]
    assert [page.status_code for page in pages] == [400, 400]
    assert "Web Shop" not in pages[0].text

    assert (await admin("client", "enable", "web-shop")).status == 0
    assert (await WEB_SHOP.log_in(http, ALICE)).status_code == 200
    assert (await WEB_SHOP.refresh(http, tokens["refresh_token"])).json()["error"] == "invalid_grant"


async def test_repeated_disabling_ends_sessions_restored_by_an_outage(
    admin: Admin, http: httpx2.AsyncClient, worker: Worker, store: redis.Redis
) -> None:
    """A failover or a restored backup can lose the revocation and keep the record."""
    tokens = (await PHONE_APP.log_in(http, ALICE)).json()
    user = await worker.registry.users.find(identify_user("main", ALICE.username))
    assert user is not None
    await worker.registry.users.put(msgspec.structs.replace(user, disabled=True))

    assert (await admin("user", "disable", ALICE.username, "--yes")).status == 0

    assert not is_live(store, tokens["access_token"])


async def test_unlock_lets_a_throttled_user_try_again(
    admin: Admin, http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    wrong = UserCredentials(ALICE.username, "a wrong password")
    for _ in range(10):
        await PHONE_APP.log_in(http, wrong)
    await PHONE_APP.log_in(http, UserCredentials(BOB.username, "a wrong password"))
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 429
    others = set(store.scan_iter("login:*")) - set(login_keys(store, ALICE))

    unlocked = await admin("user", "unlock", ALICE.username, "--json")

    assert unlocked.aside == ""
    assert unlocked.json["cleared"] == 2
    assert set(store.scan_iter("login:*")) == others
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
    event = (await admin("events", "--json")).lines[-1]
    assert (event["event"], event["username"], event["reason"]) == ("user_unlocked", ALICE.username, "cli")
    assert "there were no failed logins" in (await admin("user", "unlock", ALICE.username)).output


def login_keys(store: redis.Redis, user: UserCredentials) -> list[str]:
    return list(store.scan_iter(f"login:*{identify_user('main', user.username).digest}*"))


class TestSessions:
    async def test_one_session_of_a_user_can_be_ended(
        self, admin: Admin, http: httpx2.AsyncClient, store: redis.Redis
    ) -> None:
        phone, shop = [(await client.log_in(http, ALICE)).json() for client in (PHONE_APP, WEB_SHOP)]
        listed = (await admin("session", "list", "--user", ALICE.username, "--json")).json
        ids = {session["client_id"]: session["id"] for session in listed}
        assert set(ids) == {"phone-app", "web-shop"}
        asked = await admin("session", "end", ids["phone-app"])
        assert (asked.status, "Revoke session" in asked.aside) == (1, True)

        ended = await admin("session", "end", ids["phone-app"], "--yes", "--json")

        assert ended.json == {
            "id": ids["phone-app"],
            "client_id": "phone-app",
            "username": ALICE.username,
            "realm": "main",
            "revoked": True,
        }
        assert (is_live(store, phone["access_token"]), is_live(store, shop["access_token"])) == (False, True)
        assert "not found" in (await admin("session", "end", ids["phone-app"], "--yes")).aside
        event = (await admin("events", "--json")).lines[-1]
        assert (event["event"], event["session"]) == ("token_revoked_by_cli", ids["phone-app"])

    async def test_session_id_may_look_like_an_option(self, admin: Admin) -> None:
        """An ID has letters of base64url, so one in 64 begins with a hyphen."""
        for session_id in ("-h34567890123456789012", "-a34567890123456789012"):
            ended = await admin("session", "end", session_id, "--yes")
            assert (ended.status, f"session {session_id} not found" in ended.aside) == (1, True), ended


async def test_secret_is_shown_even_if_a_later_step_fails(admin: Admin, worker: Worker, store: redis.Redis) -> None:
    """The revocations that other changes left pending cannot be run."""
    store.set(registry_key("pending_revocations"), "no set")
    rotated = await admin("client", "rotate-secret", "web-shop", "--yes", "--json")
    created = await admin("client", "create", "kiosk", "--json")

    assert (rotated.status, created.status) == (1, 1)
    secrets = {"web-shop": rotated.json["client_secret"], "kiosk": created.json["client_secret"]}
    for client_id, secret in secrets.items():
        client = await find_client(worker, client_id)
        assert client.client_secret_hash == hash_generated_secret(secret)


class TestRealms:
    async def test_realms_are_listed_and_shown_without_secrets(self, admin: Admin, store: redis.Redis) -> None:
        store.set("realm:{registry}:cep", '{"client_id":"us","sealed_secret":"SEALED","issuer":"https://a.example"}')

        listed = (await admin("realm", "list", "--json")).json
        shown = await admin("realm", "show", "cep", "--json")

        assert [(realm["realm"], realm["issuer"]) for realm in listed] == [("main", ""), ("cep", "https://a.example")]
        assert (shown.json["client_id"], shown.json["client_secret_set"]) == ("us", True)
        assert shown.json["redirect_uri"].endswith("/authorization/callback")
        assert "SEALED" not in shown.output
        assert (await admin("realm", "show", "main")).status == 0
        assert "realm nowhere not found" in (await admin("realm", "show", "nowhere")).aside


async def test_a_dry_run_prints_one_line_for_each_field(admin: Admin, tmp_path: Path) -> None:
    file = tmp_path / "seed.yaml"
    file.write_text(SEED.read_text().replace("name: Bob", "name: Robert\n    disabled: true"))

    shown = await admin("seed", str(file), "--dry-run")

    assert shown.output.splitlines()[:3] == [
        "~ user bob@example.com of realm main  (revokes sessions)",
        "    name: Bob → Robert",
        "    disabled: false → true",
    ]


async def test_seed_does_not_ask_without_a_terminal(admin: Admin, tmp_path: Path) -> None:
    file = tmp_path / "seed.yaml"
    file.write_text(SEED.read_text().replace("name: Bob", "name: Robert\n    disabled: true"))

    assert (await admin("seed", str(file))).status == 0
    assert (await show(admin, "user", BOB.username))["disabled"]
