"""Commands that cannot be carried out: one line that says why, the exit status, and no change."""

import json

import pytest
import redis

from tests.admin.conftest import Admin
from tests.support.clients_and_users import ALICE, BOB

NEW_CLIENT, NEW_USER = ("client", "create", "x"), ("user", "create", "eve@example.com")
UPDATE_CLIENT, UPDATE_USER = ("client", "update", "web-shop"), ("user", "update", ALICE.username)
REFUSED = [
    ((*NEW_CLIENT, "--scope", "realm:main role:king"), 2, "scope: The scope item role:king is unknown."),
    ((*NEW_CLIENT, "--redirect-uri", "shop/callback"), 2, "redirect_uris[0]: expected an absolute"),
    ((*NEW_CLIENT, "--public", "--introspect"), 2, "introspect: only a client with a secret can introspect"),
    ((*NEW_CLIENT, "--public", "--revoke-users"), 2, "revoke_users: only a client with a secret can revoke"),
    ((*NEW_CLIENT, "--public", "--manage-users"), 2, "manage_users: only a client with a secret can manage"),
    ((*NEW_CLIENT, "--grant-type", "implicit"), 2, "'implicit' is not one of"),
    (("client", "create", "web-shop"), 1, "client web-shop already exists"),
    (("client", "create"), 2, "Missing argument 'ID'"),
    (("client", "shred", "web-shop"), 2, "No such command 'shred'"),
    (("client", "delete", "nobody"), 1, "client nobody not found"),
    (("client", "delete", "web-shop"), 1, "On redis"),
    (("client", "disable", "web-shop"), 1, "nothing was changed, because this needs confirmation"),
    (("client", "rotate-secret", "phone-app"), 1, "client phone-app is a public client and has no secret"),
    (("client", "rotate-secret", "web-shop"), 1, "The old one stops working now"),
    (("client", "rotate-secret", "web-shop", "--overlap", "soon"), 2, "'soon': expected seconds, or a number with s,"),
    ((*UPDATE_CLIENT, "--name", "Web Shop"), 1, "nothing to change: give at least one option with a new value"),
    ((*UPDATE_CLIENT, "--remove-scope", "role:admin"), 2, "role:admin is not in the list"),
    (
        (*UPDATE_CLIENT, "--remove-scope", "role:enduser", "--default-scope", ""),
        1,
        "revoke the sessions that depend on",
    ),
    ((*UPDATE_CLIENT, "--public"), 1, "Sessions started with the secret can no longer be refreshed"),
    ((*NEW_USER, "--password-file", "/nowhere"), 2, "/nowhere cannot be read: No such file or directory"),
    ((*NEW_USER, "--role", "king"), 2, "'king' is not one of"),
    ((*NEW_USER, "--realm", "cep"), 1, "realm cep not found"),
    (("user", "create", "Alice@Example.com"), 1, "already exists in realm main"),
    (("user", "create", "a\u200bb@example.com"), 2, "username: expected a name without invisible characters"),
    (("user", "create", "x\ny"), 2, "username: expected 1 to 255 characters in one line"),
    (("user", "create", "x\udc9b"), 2, "the arguments must be UTF-8"),
    (("user", "create", " ALICE@example.com\u200b"), 1, "user alice@example.com already exists in realm main"),
    (
        ("user", "update", "alice@example.com", "--name", "Al\u202eice"),
        2,
        "name: expected at most 255 characters in one line",
    ),
    (
        ("client", "update", "phone-app", "--name", "x" * 256),
        2,
        "client_name: expected at most 255 characters in one line",
    ),
    (UPDATE_USER, 1, "nothing to change: give at least one option with a new value"),
    ((*UPDATE_USER, "--remove-role", "admin"), 2, "admin is not in the list"),
    ((*UPDATE_USER, "--remove-role", "enduser"), 1, "Remove enduser from user alice@example.com of realm main"),
    (("user", "set-password", "x", "--realm", "cep"), 1, "users of realm cep log in at its identity provider"),
    *((("user", verb, "nobody"), 1, "user nobody") for verb in ("show", "update", "disable", "delete")),
    *((("user", verb, "nobody"), 1, "user nobody not found") for verb in ("enable", "unlock", "set-password")),
    *(
        (("user", verb, BOB.username), 1, "nothing was changed, because this needs confirmation")
        for verb in ("disable", "delete")
    ),
    (("user", "list", "--realm", "nowhere"), 1, "realm nowhere not found"),
    (("session", "list", "--user", "nobody"), 1, "user nobody not found in realm main"),
    (("session", "end", "-" + "A" * 21), 1, "session -AAAAAAAAAAAAAAAAAAAAA not found: it has ended or never"),
    (("token", "inspect", "garbage"), 1, "neither an access token of this service"),
    (("token", "inspect", "tsrt1_000" + "A" * 52), 1, "neither an access token of this service"),
    (("token", "revoke", "tsrt1_000" + "A" * 52), 1, "neither an access token nor a refresh token"),
    (("revoke-all",), 2, "give exactly one of --user, --client, --issued-before or --everything"),
    (("revoke-all", "--everything", "--client", "phone-app"), 2, "give exactly one of"),
    (("revoke-all", "--everything", "--realm", "main"), 2, "--realm requires --user"),
    (("revoke-all", "--client", "phone-app", "--from-shard", "a"), 2, "--from-shard requires"),
    (("revoke-all", "--everything"), 1, "nothing was changed, because this needs confirmation"),
    (("revoke-all", "--user", "nobody"), 1, "user nobody not found in realm main"),
    (("revoke-all", "--client", "nobody"), 1, "client nobody not found"),
    (("revoke-all", "--issued-before", "yesterday"), 2, "'yesterday': expected an ISO 8601 time"),
    (("revoke-all", "--issued-before", "2999-01-01"), 2, "the time must be in the past"),
    (("revoke-all", "--issued-before", "1970-01-01T00:00:00.001Z", "--yes"), 2, "in this century"),
    (("events", "--since", "yesterday"), 2, "or a duration such as 90m or 24h"),
    (("seed", "/nowhere"), 2, "/nowhere"),
    (("hash-secret", "--file", "/nowhere"), 2, "/nowhere cannot be read"),
    (("nonsense",), 2, "No such command 'nonsense'"),
    (("usr", "list"), 2, "No such command 'usr'. Did you mean 'user'?"),
]
BAD_LINES = [
    (NEW_USER, "", "stdin: expected the password on a single line"),
    (NEW_USER, "one\ntwo\n", "stdin: expected the password on a single line"),
    (NEW_USER, "seven77\n", "password: expected 8 to 1024 characters in one line"),
    (("user", "set-password", BOB.username), "seven77\n", "password: expected 8 to 1024 characters in one line"),
    (("hash-secret", "--file", "-"), "a\nb\n", "stdin: expected the secret on a single line"),
    (("hash-secret", "--file", "-"), "b" * 1025, "secret: expected one line of 1 to 1024 characters"),
]


async def refuse(admin: Admin, store: redis.Redis, *words: str, typed: str | None = None) -> tuple[int, str]:
    """Return the exit status and stderr of a command, which must print nothing else and change nothing."""
    before = {key: store.dump(key) for key in store.scan_iter()}
    refused = await admin(*words, typed=typed)
    assert refused.output == ""
    assert "Traceback" not in refused.aside
    assert {key: store.dump(key) for key in store.scan_iter()} == before
    return refused.status, refused.aside


@pytest.mark.parametrize(("words", "status", "message"), REFUSED)
async def test_a_refused_command_says_why_and_changes_nothing(
    admin: Admin, store: redis.Redis, words: tuple[str, ...], status: int, message: str
) -> None:
    refused_with, told = await refuse(admin, store, *words)

    assert (refused_with, message in told) == (status, True), told
    as_json = json.loads((await refuse(admin, store, *words, "--json"))[1].splitlines()[-1])
    assert as_json["status"] == status
    assert message in as_json["error"] or message == "On redis"


@pytest.mark.parametrize(("words", "typed", "message"), BAD_LINES)
async def test_a_bad_line_of_input_changes_nothing(
    admin: Admin, store: redis.Redis, words: tuple[str, ...], typed: str, message: str
) -> None:
    status, told = await refuse(admin, store, *words, typed=typed)

    assert (status, message in told) == (2, True), told


async def test_all_mistakes_of_a_client_are_reported_at_once(admin: Admin, store: redis.Redis) -> None:
    options = ("--redirect-uri", "shop/callback", "--scope", "realm:main role:king", "--introspect", "--public")

    status, told = await refuse(admin, store, "client", "create", "shop", *options)

    places = {line.removeprefix("Error: ").split(":")[0] for line in told.splitlines()}
    assert (status, places) == (2, {"redirect_uris[0]", "scope", "introspect"})


async def test_bad_settings_are_named_without_a_password(admin: Admin, environment: dict[str, str]) -> None:
    environment |= {"REDIS_URL": "ftp://me:hunter2@example.org", "TOKEN_SERVICE_CODE_TTL": "soon"}

    refused = await admin("stats")

    assert refused.status == 2
    assert "REDIS_URL" in refused.aside
    assert "TOKEN_SERVICE_CODE_TTL: 'soon'" in refused.aside
    assert "hunter2" not in refused.aside
