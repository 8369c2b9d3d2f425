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
def test_a_good_file_is_read_as_it_stands() -> None:
    seed = load_seed(CHECKOUT / "tests" / "seed.yaml", 8)

    assert (seed.clients[0].client_id, seed.clients[0].scope) == (
        "phone-app",
        "realm:main realm:cep role:enduser role:organisation role:device",
    )
    assert (seed.users[2].username, seed.users[2].realm) == ("Meter@Example.com", "main")


def test_the_example_seed_has_no_mistake() -> None:
    assert load_seed(CHECKOUT / "examples" / "seed.yaml", 8).clients


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
        ("- a\n", "the file: expected a mapping with the keys realms, clients and users"),
        ("clients: [a\nusers: }", "line 2, column "),
        ("clients:\n\t- a\n", "line 2, column 1: "),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: "),
        ("a: !!python/object:os.system {}", "line 1, column 4: "),
        ("a: *nothing", "line 1, column 4: "),
        ("a: &x 1\nb: &x 2", "line 2, column 4: second occurrence"),
        ("users: [{<<: 5}]", "line 1, column 14: expected a mapping"),
        ("users: [{[a]: 5}]", "line 1, column 10: found unhashable key"),
        ("? [a]\n: 5", "line 1, column 3: found unhashable key"),
        ("a: &a [x, x]\n? *a\n: 5", "line 1, column 4: found unhashable key"),
        ("users: !!set {a}", "line 1, column 8: found unknown tag"),
        ("users: !!bool hunter2", "line 1, column 8: found text that is no bool"),
        (f"users: {'[' * 100_000}{']' * 100_000}", "the file: is nested too deeply"),
        (f"users:\n{'- ' * 100_000}", "the file: is nested too deeply"),
        ("a: \0", "the file: "),
    ],
)
def test_what_is_no_yaml_of_ours_is_one_mistake_with_its_line(text: str, expected: str) -> None:
    (mistake,) = mistakes(text)

    assert mistake.startswith(expected)


def test_a_key_speaks_to_no_terminal() -> None:
    (mistake, _) = mistakes('users: [{"a\\e[2J\\nb": 1, username: a}]')

    assert mistake.startswith("users[0].a\\x1b[2J\\nb: unknown key")


@pytest.mark.parametrize("text", [b"clients:\n  - client_name: \xff\xfe", b"\xff", b"users: \xc3\x28"])
def test_bytes_that_are_not_utf_8_are_one_mistake(text: bytes) -> None:
    with pytest.raises(BadSeed) as caught:
        parse_seed(text)

    assert len(caught.value.mistakes) == 1


def test_a_file_that_cannot_be_read_is_one_mistake(tmp_path: Path) -> None:
    with pytest.raises(BadSeed, match="cannot be read: No such file"):
        load_seed(tmp_path / "nowhere.yaml", 8)


def test_an_anchor_reaches_over_sections_and_lists_of_merges() -> None:
    text = """
users:
- &first {username: one, realm: cep, roles: &roles [enduser]}
- {<<: [{name: Two, roles: [admin]}, *first], username: two}
- {username: three, realm: cep, roles: *roles}
realms:
  cep: &cep {client_id: us, issuer: "https://a.example", default_roles: *roles}
  other: {<<: *cep, client_id: them}
clients: &none []
"""
    seed = parse_seed(text.encode())

    assert [(user.username, user.realm, user.name, user.roles) for user in seed.users] == [
        ("one", "cep", "", ("enduser",)),
        ("two", "cep", "Two", ("admin",)),
        ("three", "cep", "", ("enduser",)),
    ]
    assert [(realm.client_id, realm.issuer) for realm in seed.realms.values()] == [
        ("us", "https://a.example"),
        ("them", "https://a.example"),
    ]


@pytest.mark.clause("decided-seed-all-mistakes-at-once")
def test_mistakes_stand_in_the_order_of_the_sections_whatever_that_of_the_file() -> None:
    """Realms can stand behind the users that need them. Repeated keys come first, as a reason for other mistakes."""
    text = """
users:
- {username: 5, realm: cep, password: x}
- {username: a, realm: nowhere, roles: [king], roles: [enduser]}
- nothing
- {username: a, realm: nowhere}
clients: [{client_id: app, client_name: 5}]
unknown: {}
realms: {cep: {client_id: us}}
"""
    assert [mistake.partition(": ")[0] for mistake in mistakes(text)] == [
        "users[1].roles",
        "unknown",
        "realms.cep.authorization_endpoint",
        "realms.cep.token_endpoint",
        "realms.cep",
        "clients[0].client_name",
        "users[0].username",
        "users[0].password",
        "users[1].realm",
        "users[2]",
        "users[3].realm",
        "users[3].username",
    ]


@pytest.mark.parametrize("text", ["users: &a [*a]", "users: [&a {username: *a}]", "realms: &a {cep: *a}"])
def test_an_alias_of_itself_is_a_mistake_and_no_crash(text: str) -> None:
    assert mistakes(text)


@pytest.mark.clause("decided-seed-unknown-keys")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("client: []", "client: unknown key"),
        (f"{CLIENT}redirect_uri: x", "clients[0].redirect_uri: unknown key"),
        (f"{USER}password: x\n    role: x", "users[0].role: unknown key"),
        (f"{REALM}issuer: https://a.example\n    5: x", "realms.cep.5: unknown key"),
        (f"{CLIENT}scope: ''\n    scope: ''", "clients[0].scope: this key stands twice"),
        ("users: []\nclients: []\nusers: []", "users: this key stands twice"),
        (f"{REALM}issuer: https://a.example\n  cep: {{client_id: b}}", "realms.cep: this key stands twice"),
        ("clients:\n- client_id: a\n  client_id: b", "clients[0].client_id: this key stands twice in its mapping"),
        ("clients:\n- client_id: a\n- {client_id: b, scope: '', scope: x}", "clients[1].scope: this key stands twice"),
    ],
)
def test_unknown_and_repeated_keys_are_mistakes(text: str, expected: str) -> None:
    assert [mistake for mistake in mistakes(text) if mistake.startswith(expected)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("clients: {}", "clients: expected a list"),
        ("users: x", "users: expected a list"),
        ("realms: []", "realms: expected a mapping"),
        ("clients: [x]", "clients[0]: expected a mapping"),
        ("users: [null]", "users[0]: expected a mapping"),
        ("clients: [{client_name: x}]", "clients[0].client_id: is missing"),
        (f"{CLIENT}redirect_uris: [5]", "clients[0].redirect_uris[0]: expected text"),
        (f"{CLIENT}introspect: some", "clients[0].introspect: expected one of true, false, all"),
        (f"{USER}password: 2024-01-01", "users[0].password: expected text"),
        (f"{CLIENT}client_name: [x]", "clients[0].client_name: expected text, got a list"),
        (f"{CLIENT}client_name: {{x: y}}", "clients[0].client_name: expected text, got a mapping"),
        (f"{CLIENT}client_name: 5", "clients[0].client_name: expected text, got a number"),
        (f"{CLIENT}client_name: true", "clients[0].client_name: expected text, got true or false"),
        (f"{CLIENT}client_name: null", "clients[0].client_name: expected text, got nothing"),
        (f"{CLIENT}grant_types: {{x: y}}", "clients[0].grant_types: expected a list, got a mapping"),
        (f"{CLIENT}require_pkce: 1", "clients[0].require_pkce: expected true or false, got a number"),
    ],
)
def test_wrong_types_are_told_with_their_place(text: str, expected: str) -> None:
    assert [mistake for mistake in mistakes(text) if mistake.startswith(expected)]


@pytest.mark.clause("decided-seed-all-mistakes-at-once")
def test_a_wrong_type_hides_no_other_mistake_of_its_entry() -> None:
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
        "clients[0].scope",
        "clients[0].introspect",
        "users[0].username",
        "users[0].password",
        "users[0].roles[0]",
        "users[0].roles[1]",
        "users[0].realm",
    }
