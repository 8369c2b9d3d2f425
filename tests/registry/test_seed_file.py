"""The schema of the seed file: a good file is read, and all mistakes are reported at once with their places."""

from pathlib import Path

import pytest

from service.registry.seed_file.entries import BadSeed, Seed
from service.registry.seed_file.read import load_seed, parse_seed
from tests.support.servers import CHECKOUT

CLIENT = "clients:\n  - client_id: app\n    "
USER = "users:\n  - username: alice@example.com\n    "
REALM = "realms:\n  cep:\n    client_id: us\n    "


def mistakes(text: str) -> list[str]:
    with pytest.raises(BadSeed) as caught:
        parse_seed(text.encode())
    return list(caught.value.mistakes)


@pytest.mark.clause("spec-5.5-registration-procedure", "spec-2.3-client-record", "spec-2.3-user-record")
def test_a_valid_file_is_read() -> None:
    seed = load_seed(CHECKOUT / "tests" / "seed.yaml", 8)

    assert (seed.clients[0].client_id, seed.clients[0].scope) == (
        "phone-app",
        "realm:main realm:cep role:enduser role:organisation role:device",
    )
    assert (seed.users[2].username, seed.users[2].realm) == ("meter@example.com", "main")


@pytest.mark.parametrize("text", ["{}", "clients:\nusers:\nrealms:\n", "clients: []"])
def test_sections_may_be_empty_or_missing(text: str) -> None:
    seed = parse_seed(text.encode())

    assert (seed.realms, seed.clients, seed.users) == ({}, (), ())


def test_anchors_and_merges_of_yaml_are_taken() -> None:
    text = "clients:\n- &a {client_id: one, grant_types: [password]}\n- {<<: *a, client_id: two}\n"
    seed: Seed = parse_seed(text.encode())

    assert [client.client_id for client in seed.clients] == ["one", "two"]
    assert seed.clients[0].grant_types == seed.clients[1].grant_types == ("password",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file: expected a mapping with the keys realms, clients and users"),
        ("clients: [a\nusers: }", "line 2, column "),
        ("a: !!python/object:os.system {}", "line 1, column 4: "),
        ("a: &x 1\nb: &x 2", "line 2, column 4: second occurrence"),
        ("users: !!bool hunter2", "line 1, column 8: found text that is not a bool"),
        ("a: \0", "the file: "),
    ],
)
def test_malformed_yaml_is_one_mistake_with_its_line(text: str, expected: str) -> None:
    (mistake,) = mistakes(text)

    assert mistake.startswith(expected)


def test_keys_cannot_send_terminal_escapes() -> None:
    (mistake, *_) = mistakes('users: [{"a\\e[2J\\nb": 1, username: a}]')

    assert mistake.startswith("users[0].a\\x1b[2J\\nb: unknown key")


def test_a_file_that_cannot_be_read_is_one_mistake(tmp_path: Path) -> None:
    with pytest.raises(BadSeed, match="cannot be read: No such file"):
        load_seed(tmp_path / "nowhere.yaml", 8)


@pytest.mark.parametrize("text", ["users: &a [*a]", "users: [&a {username: *a}]", "realms: &a {cep: *a}"])
def test_recursive_alias_is_a_mistake(text: str) -> None:
    assert mistakes(text)


@pytest.mark.clause("decided-seed-unknown-keys")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{CLIENT}redirect_uri: x", "clients[0].redirect_uri: unknown key; did you mean redirect_uris?"),
        (f"{REALM}issuer: https://a.example\n    5: x", "realms.cep.5: unknown key"),
        (f"{CLIENT}scope: ''\n    scope: ''", "clients[0].scope: this key appears twice"),
        (f"{REALM}issuer: https://a.example\n  cep: {{client_id: b}}", "realms.cep: this key appears twice"),
        ("clients:\n- client_id: a\n- {client_id: b, scope: '', scope: x}", "clients[1].scope: this key appears twice"),
    ],
)
def test_unknown_and_repeated_keys_are_mistakes(text: str, expected: str) -> None:
    assert [mistake for mistake in mistakes(text) if mistake.startswith(expected)]


@pytest.mark.clause("decided-seed-unknown-keys")
def test_known_keys_are_listed_once_for_keys_like_none() -> None:
    told = mistakes("users: [{username: a, password: long enough, x: 1}, {y: 1, rolse: [enduser]}]\nuser: []")

    assert told == [
        "user: unknown key; did you mean users?",
        "users[0].x: unknown key",
        "allowed keys of a user: username, realm, id, password, password_hash, roles, name, disabled",
        "users[1].y: unknown key",
        "users[1].rolse: unknown key; did you mean roles?",
        "users[1].username: is missing",
        "users[1].password: password or password_hash is required",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("clients: {}", "clients: expected a list"),
        ("realms: []", "realms: expected a mapping"),
        ("clients: [x]", "clients[0]: expected a mapping"),
        ("clients: [{client_name: x}]", "clients[0].client_id: is missing"),
        (f"{CLIENT}redirect_uris: [5]", "clients[0].redirect_uris[0]: Expected `str`, got `int`"),
        (f"{CLIENT}introspect: some", "clients[0].introspect: expected one of true, false, all"),
        (f"{USER}password: 2024-01-01", "users[0].password: Expected `str | null`"),
        (f"{USER}password: x\n    disabled:", "users[0].disabled: expected a value, not null"),
        (f"{USER}password_hash:", "users[0].password_hash: expected a value, not null"),
        (f"{CLIENT}client_secret:", "clients[0].client_secret: expected a value, not null"),
        (f"{CLIENT}access_token_ttl: ~", "clients[0].access_token_ttl: expected a value, not null"),
        (f"{REALM}issuer: https://a.example\n    client_secret: null", "realms.cep.client_secret: expected a value"),
    ],
)
def test_wrong_types_are_reported_with_their_place(text: str, expected: str) -> None:
    assert [mistake for mistake in mistakes(text) if mistake.startswith(expected)]


@pytest.mark.clause("decided-seed-all-mistakes-at-once")
def test_wrong_type_does_not_hide_other_mistakes() -> None:
    text = """
realms:
  cep: {client_id: 5, issuer: "http://a.example", default_roles: king}
clients:
  - client_id: [app]
    client_name: 5
    require_pkce: maybe
    client_secret: "pässword"
    grant_types: [implicit, 5]
    redirect_uris: [5, /relative]
    cors_origins: [https://a.example, https://a.example/]
    scope: role:king
    introspect: some
users:
  - username: 5
    password: ""
    roles: [5, king]
    realm: elsewhere
"""
    assert {mistake.partition(": ")[0] for mistake in mistakes(text)} == {
        "realms.cep.client_id",
        "realms.cep.issuer",
        "realms.cep.default_roles",
        "clients[0].client_id",
        "clients[0].client_name",
        "clients[0].require_pkce",
        "clients[0].client_secret",
        "clients[0].grant_types[0]",
        "clients[0].grant_types[1]",
        "clients[0].redirect_uris[0]",
        "clients[0].redirect_uris[1]",
        "clients[0].cors_origins[1]",
        "clients[0].scope",
        "clients[0].introspect",
        "users[0].username",
        "users[0].password",
        "users[0].roles[0]",
        "users[0].roles[1]",
        "users[0].realm",
    }
