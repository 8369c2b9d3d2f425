"""`client update · disable · enable` and `user update · unlock`: only what is named changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import redis

from service.crypto.generated_secrets import hash_generated_secret
from service.protocol.user import identify_user
from service.redis_client.lock import LOCK_PAUSE_SECONDS
from service.registry.cache import UNKNOWN_SECONDS
from service.registry.editor import ChangeRefused, RegistryEditor
from service.store.keys import registry_key
from service.worker import Worker
from tests.admin.conftest import Admin
from tests.conftest import SEED, make_code
from tests.registry.contents import find_client
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    GATEWAY,
    PHONE_APP,
    WEB_SHOP,
    OAuthClient,
    UserCredentials,
    is_live,
)
from tests.support.loop_time import LoopTime
from tests.support.origins import is_origin
from tests.support.waiting import until


async def show(admin: Admin, kind: str, name: str) -> dict[str, Any]:
    shown: dict[str, Any] = (await admin(kind, "show", name, "--json")).json
    return shown


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (("--name", "Another"), {"client_name": "Another"}),
        (("--add-redirect-uri", "https://x.example/y"), {"redirect_uris": ["WAS", "https://x.example/y"]}),
        (("--redirect-uri", "https://x.example/y"), {"redirect_uris": ["https://x.example/y"]}),
        (("--add-scope", "role:admin"), {"scope": "realm:main role:enduser role:partner role:admin"}),
        (("--require-pkce",), {"require_pkce": True}),
        (("--introspect",), {"introspect": True}),
        (("--introspect-all",), {"introspect": "all"}),
        (("--default-scope", "realm:main"), {"default_scope": "realm:main"}),
    ],
)
async def test_what_is_named_changes_and_nothing_else(
    admin: Admin, words: tuple[str, ...], changes: dict[str, Any]
) -> None:
    before = await show(admin, "client", "web-shop")
    expected = before | {
        name: [*before[name], *value[1:]] if isinstance(value, list) and value[0] == "WAS" else value
        for name, value in changes.items()
    }

    changed = await admin("client", "update", "web-shop", *words, "--json")

    assert (changed.status, changed.json) == (0, expected)
    assert await show(admin, "client", "web-shop") == expected


async def test_a_new_redirect_uri_counts_at_once_with_its_origin(admin: Admin, worker: Worker) -> None:
    await admin("client", "update", "web-shop", "--add-redirect-uri", "https://new.example/callback")
    assert await is_origin(worker, "https://new.example")

    await admin("client", "update", "web-shop", "--remove-redirect-uri", "https://new.example/callback")
    assert not await is_origin(worker, "https://new.example")


async def test_a_removed_role_asks_and_ends_the_sessions_that_rest_on_it(
    admin: Admin, http: httpx2.AsyncClient
) -> None:
    tokens = (await WEB_SHOP.log_in(http, ALICE)).json()
    words = ("client", "update", "web-shop", "--remove-scope", "role:enduser", "--default-scope", "realm:main")

    asked = await admin(*words)
    assert (asked.status, asked.output) == (1, "")
    assert "Take role:enduser from the client web-shop, and end the sessions that rest on it?" in asked.aside
    assert asked.aside.startswith("On redis://")
    assert (await GATEWAY.introspect(http, tokens["access_token"])).json()["active"]

    assert (await admin(*words, "--yes")).status == 0
    assert not (await GATEWAY.introspect(http, tokens["access_token"])).json()["active"]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("nobody", "--name", "x"), 1, "there is no client nobody"),
        (("web-shop",), 1, "nothing was changed: no option names anything new"),
        (("web-shop", "--name", "Web Shop"), 1, "nothing was changed: no option names anything new"),
        (("web-shop", "--remove-scope", "role:admin"), 2, "role:admin: cannot be removed, because the client does not"),
        (("web-shop", "--add-scope", "role:king"), 2, "--scope: unknown item 'role:king'; known are realm:main, "),
        (("web-shop", "--redirect-uri", "shop/callback"), 2, "--redirect-uri: expected an absolute"),
        (("phone-app", "--introspect"), 2, "--introspect: only a client with a secret may introspect"),
        (("web-shop", "--public"), 1, "Sessions that it began with the secret cannot be refreshed"),
    ],
)
async def test_a_change_that_cannot_be_made_is_refused_in_a_line(
    admin: Admin, store: redis.Redis, words: tuple[str, ...], status: int, message: str
) -> None:
    before = store.get("client:{registry}:web-shop")

    refused = await admin("client", "update", *words)

    assert (refused.status, refused.output) == (status, "")
    assert message in refused.aside
    assert store.get("client:{registry}:web-shop") == before


async def test_an_update_keeps_the_overlap_of_a_rotated_secret(admin: Admin, http: httpx2.AsyncClient) -> None:
    await admin("client", "rotate-secret", "web-shop", "--overlap", "24h")
    await admin("client", "update", "web-shop", "--name", "Another")

    assert (await WEB_SHOP.log_in(http, ALICE)).status_code == 200
    again = await admin("client", "rotate-secret", "web-shop", "--overlap", "24h")
    assert (again.status, "The secret before the last rotation of web-shop is valid until" in again.aside) == (1, True)
    assert (await WEB_SHOP.log_in(http, ALICE)).status_code == 200


async def test_of_many_updates_at_once_none_is_lost_silently(
    worker: Worker, registry: None, held_time: LoopTime
) -> None:
    """Each adds another redirect URI to the same record. One that came too late is refused, and says so."""
    editor = RegistryEditor(worker.registry, worker.pending_revocations, "somebody", lambda: None)
    old = await find_client(worker, "web-shop")
    uris = [f"https://shop.example/{number}" for number in range(50)]

    async def add(uri: str) -> None:
        await editor.update_client(old, msgspec.structs.replace(old, redirect_uris=(*old.redirect_uris, uri)))

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

    assert refusals == {"the client web-shop was changed meanwhile; repeat the command"}
    assert len(added) == 1
    assert (await find_client(worker, "web-shop")).redirect_uris == (*old.redirect_uris, *added)


@pytest.mark.clause("decided-client-disabled")
async def test_a_disabled_client_is_refused_as_an_unknown_one_and_has_no_sessions(
    admin: Admin, http: httpx2.AsyncClient, worker: Worker, store: redis.Redis, held_time: LoopTime
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
    held_time.advance(UNKNOWN_SECONDS)  # a worker remembers for so long that there was no such client
    assert (await WEB_SHOP.log_in(http, ALICE)).status_code == 200
    assert (await WEB_SHOP.refresh(http, tokens["refresh_token"])).json()["error"] == "invalid_grant"


async def test_a_role_can_be_added_to_a_user_who_stays_logged_in(admin: Admin, http: httpx2.AsyncClient) -> None:
    tokens = (await PHONE_APP.log_in(http, BOB)).json()

    changed = await admin("user", "update", BOB.username, "--add-role", "admin", "--name", "Robert", "--json")

    assert (changed.json["roles"], changed.json["name"]) == (["enduser", "admin"], "Robert")
    assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == 200


async def test_a_role_that_is_taken_asks_and_ends_the_users_sessions(
    admin: Admin, http: httpx2.AsyncClient, store: redis.Redis
) -> None:
    tokens = (await PHONE_APP.log_in(http, ALICE)).json()
    words = ("user", "update", ALICE.username, "--remove-role", "organisation")

    asked = await admin(*words)
    assert (asked.status, "Take organisation from alice@example.com of realm main" in asked.aside) == (1, True)
    assert is_live(store, tokens["access_token"])

    assert (await admin(*words, "--yes")).status == 0
    assert not is_live(store, tokens["access_token"])
    assert (await show(admin, "user", ALICE.username))["roles"] == ["enduser"]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("nobody", "--name", "x"), 1, "there is no user nobody with a record in realm main"),
        ((ALICE.username,), 1, "nothing was changed: no option names anything new"),
        ((ALICE.username, "--remove-role", "admin"), 2, "does not have the role admin"),
        ((ALICE.username, "--add-role", "king"), 2, "'king' is not one of"),
    ],
)
async def test_a_user_that_cannot_be_changed_so_is_told(
    admin: Admin, words: tuple[str, ...], status: int, message: str
) -> None:
    refused = await admin("user", "update", *words)

    assert (refused.status, refused.output) == (status, "")
    assert message in refused.aside


@pytest.mark.parametrize("attempts", [10])
async def test_unlock_lets_a_throttled_user_try_again(
    admin: Admin, http: httpx2.AsyncClient, store: redis.Redis, attempts: int
) -> None:
    wrong = UserCredentials(ALICE.username, "a wrong password")
    for _ in range(attempts):
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
    assert (event["event"], event["username"], event["reason"]) == ("user_unlocked", ALICE.username, "console")
    assert "there were no failed logins" in (await admin("user", "unlock", ALICE.username)).output


def login_keys(store: redis.Redis, user: UserCredentials) -> list[str]:
    return list(store.scan_iter(f"login:*{identify_user('main', user.username).subject}*"))


class TestSessions:
    async def test_one_session_of_a_user_can_be_ended(
        self, admin: Admin, http: httpx2.AsyncClient, store: redis.Redis
    ) -> None:
        phone, shop = [(await client.log_in(http, ALICE)).json() for client in (PHONE_APP, WEB_SHOP)]
        listed = (await admin("session", "list", "--user", ALICE.username, "--json")).json
        ids = {session["client_id"]: session["id"] for session in listed}
        assert set(ids) == {"phone-app", "web-shop"}
        asked = await admin("session", "end", ids["phone-app"])
        assert (asked.status, "End the session" in asked.aside) == (1, True)

        ended = await admin("session", "end", ids["phone-app"], "--yes", "--json")

        assert ended.json == {
            "id": ids["phone-app"],
            "client_id": "phone-app",
            "username": ALICE.username,
            "realm": "main",
            "ended": True,
        }
        assert (is_live(store, phone["access_token"]), is_live(store, shop["access_token"])) == (False, True)
        assert "there is no session" in (await admin("session", "end", ids["phone-app"], "--yes")).aside
        event = (await admin("events", "--json")).lines[-1]
        assert (event["event"], event["family"]) == ("token_revoked_by_console", ids["phone-app"])

    @pytest.mark.parametrize(
        ("words", "status", "message"),
        [
            (("list",), 2, "Missing option '--user'"),
            (("list", "--user", "nobody"), 1, "there is no user nobody in realm main"),
            (("list", "--user", "x", "--realm", "nowhere"), 1, "there is no realm nowhere"),
            (("end", "short"), 2, "short: expected the 22 characters that `session list` shows"),
            (("end", "A" * 22), 1, "there is no session AAAAAAAAAAAAAAAAAAAAAA: it has ended, or never began"),
        ],
    )
    async def test_what_cannot_be_done_is_told(
        self, admin: Admin, words: tuple[str, ...], status: int, message: str
    ) -> None:
        refused = await admin("session", *words)

        assert (refused.status, refused.output) == (status, "")
        assert message in refused.aside

    async def test_a_user_without_sessions_has_an_empty_list(self, admin: Admin) -> None:
        assert (await admin("session", "list", "--user", ALICE.username, "--json")).json == []
        assert "has no sessions" in (await admin("session", "list", "--user", ALICE.username)).aside


async def test_an_id_of_a_session_may_begin_with_a_hyphen(admin: Admin) -> None:
    refused = await admin("session", "end", "-" + "A" * 21)

    assert (refused.status, "there is no session -AAA" in refused.aside) == (1, True)


async def test_a_secret_is_shown_although_what_follows_fails(admin: Admin, worker: Worker, store: redis.Redis) -> None:
    """The revocations that other changes left pending cannot be run."""
    store.set(registry_key("pending_revocations"), "no set")
    rotated = await admin("client", "rotate-secret", "web-shop", "--yes", "--json")
    created = await admin("client", "create", "kiosk", "--json")

    assert (rotated.status, created.status) == (1, 1)
    secrets = {"web-shop": rotated.json["client_secret"], "kiosk": created.json["client_secret"]}
    for client_id, secret in secrets.items():
        client = await find_client(worker, client_id)
        assert client.client_secret_hash == hash_generated_secret(secret)


@pytest.mark.parametrize("words", [("--overlap", "0"), ()])
async def test_an_overlap_of_nothing_asks_as_none_does(admin: Admin, words: tuple[str, ...]) -> None:
    refused = await admin("client", "rotate-secret", "web-shop", *words)

    assert (refused.status, "so that the old one fails at once?" in refused.aside) == (1, True)


async def test_questions_and_remarks_are_json_with_json(admin: Admin) -> None:
    refused = await admin("client", "disable", "web-shop", "--json")
    warned = await admin("client", "create", "idle", "--json")

    assert msgspec.json.decode(refused.aside)["error"].endswith(
        "Disable the client web-shop, and end all of its sessions?"
    )
    assert msgspec.json.decode(warned.aside)["note"].startswith("warning: it has no grant type")


async def test_unlock_tells_of_an_unknown_and_of_a_disabled_user(admin: Admin) -> None:
    assert (await admin("user", "unlock", "nobody")).aside == "Error: there is no user nobody in realm main\n"

    await admin("user", "disable", BOB.username, "--yes")
    assert "is disabled, and cannot log in" in (await admin("user", "unlock", BOB.username)).aside
    assert "user_unlocked" not in (await admin("events")).output


class TestRealms:
    async def test_realms_are_listed_and_shown_without_secrets(self, admin: Admin, store: redis.Redis) -> None:
        store.set("realm:{registry}:cep", '{"client_id":"us","sealed_secret":"SEALED","issuer":"https://a.example"}')

        listed = (await admin("realm", "list", "--json")).json
        shown = await admin("realm", "show", "cep", "--json")

        assert [(realm["realm"], realm["issuer"]) for realm in listed] == [("main", ""), ("cep", "https://a.example")]
        assert (shown.json["client_id"], shown.json["has_secret"]) == ("us", True)
        assert shown.json["redirect_uri_there"].endswith("/authorization/callback")
        assert "SEALED" not in shown.output
        assert (await admin("realm", "show", "main")).status == 0
        assert "there is no realm nowhere" in (await admin("realm", "show", "nowhere")).aside


async def test_mass_logouts_can_be_told_apart_in_the_events(admin: Admin, http: httpx2.AsyncClient) -> None:
    for words in (
        ("--user", ALICE.username),
        ("--client", "phone-app"),
        ("--issued-before", "2026-01-01T00:00:00Z"),
        ("--everything",),
    ):
        await PHONE_APP.log_in(http, ALICE)
        assert (await admin("revoke-all", *words, "--yes")).status == 0

    told = [
        (event["reason"], event.get("count"), event.get("issued_before"))
        for event in (await admin("events", "--json")).lines
        if event["event"] == "revoke_all_by_console"
    ]
    assert told == [
        ("user", 1, None),
        ("client", 1, None),
        ("issued_before", 1, "2026-01-01T00:00:00Z"),
        ("everything", 1, None),
    ]


async def test_events_can_be_limited_by_time_and_number(admin: Admin) -> None:
    for name in ("One", "Two", "Three"):
        await admin("user", "update", ALICE.username, "--name", name)

    assert len((await admin("events", "--limit", "2", "--json")).lines) == 2
    assert len((await admin("events", "--since", "24h", "--json")).lines) == 3
    assert len((await admin("events", "--since", "2020-01-01", "--json")).lines) == 3
    assert (await admin("events", "--since", "2099-01-01", "--json")).output == ""
    wrong = await admin("events", "--since", "yesterday")
    assert (wrong.status, "or a span such as 90m or 24h" in wrong.aside) == (2, True)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("client", "show", "nobody"), 1, "there is no client nobody"),
        (("client", "delete", "web-shop"), 1, "Add --yes to confirm"),
        (("client", "create"), 2, "Missing argument 'ID'"),
        (("nonsense",), 2, "No such command 'nonsense'"),
    ],
)
async def test_errors_are_json_with_json(admin: Admin, words: tuple[str, ...], status: int, message: str) -> None:
    refused = await admin(*words, "--json")

    told = msgspec.json.decode(refused.aside.splitlines()[-1])
    assert (refused.status, refused.output, told["status"]) == (status, "", status)
    assert message in told["error"]


async def test_the_version_is_told(admin: Admin) -> None:
    answer = await admin("--version")

    assert (answer.status, answer.output.startswith("token-service ")) == (0, True)


async def test_a_dry_run_prints_one_line_for_each_field(admin: Admin, tmp_path: Path) -> None:
    file = tmp_path / "seed.yaml"
    file.write_text(SEED.read_text().replace("name: Bob", "name: Robert\n    disabled: true"))

    shown = await admin("seed", str(file), "--dry-run")

    assert shown.output.splitlines()[:3] == [
        "~ user bob@example.com of realm main  (ends sessions)",
        "    name: Bob → Robert",
        "    disabled: false → true",
    ]


async def test_a_seed_at_a_pipe_is_not_asked(admin: Admin, tmp_path: Path) -> None:
    file = tmp_path / "seed.yaml"
    file.write_text(SEED.read_text().replace("name: Bob", "name: Robert\n    disabled: true"))

    assert (await admin("seed", str(file))).status == 0
    assert (await show(admin, "user", BOB.username))["disabled"]


async def test_a_list_of_users_can_be_narrowed(admin: Admin) -> None:
    listed = (await admin("user", "list", "--match", "ALICE", "--json")).json

    assert [user["username"] for user in listed] == [ALICE.username]
