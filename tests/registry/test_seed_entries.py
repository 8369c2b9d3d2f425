"""The form of redirect URIs, secrets, scopes, realms and names in the entries of a seed file."""

import json

import msgspec
import pytest

from service.registry.seed_file.entries import BadSeed
from service.registry.seed_file.read import parse_seed

CODE_CLIENT = "clients:\n  - client_id: app\n    grant_types: [authorization_code]\n    redirect_uris: "
CLIENT = "clients:\n  - client_id: app\n    "
SCHEME = "expected the scheme http or https, or an app's own scheme with a dot, such as com.example.app"
FORM = (
    "expected an absolute URI such as https://app.example/callback, "
    "without fragment, user information, spaces and backslashes"
)
USER = "users:\n  - username: alice@example.com\n    "
HASH = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$0mF1Zk7eNnV2c0y1bXZkZ0hGd2tLb0hGd2tLb0hGd2s"


def find_mistakes(text: str) -> list[str]:
    try:
        parse_seed(text.encode())
    except BadSeed as error:
        return list(error.mistakes)
    return []


@pytest.mark.clause("6749-3.1.2-absolute-uri", "6749-3.1.2-no-fragment", "6749-10.6-redirect-uris-registered")
@pytest.mark.parametrize(
    ("redirect_uri", "mistake"),
    [
        ("/callback", FORM),
        ("https://a.example/#x", FORM),
        ("https://user@a.example/", FORM),
        ("https://a.example\\\\@b.example/", FORM),
    ],
)
def test_redirect_uri_must_be_absolute_and_harmless(redirect_uri: str, mistake: str) -> None:
    assert find_mistakes(f'{CODE_CLIENT}["https://fine.example/", "{redirect_uri}"]') == [
        f"clients[0].redirect_uris[1]: {mistake}"
    ]


@pytest.mark.clause("decided-redirect-uri-schemes")
@pytest.mark.parametrize(
    "redirect_uri",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "intent://a.example/#Intent;end".replace("#", "%23"),
        "myapp:/callback",
    ],
)
def test_only_web_schemes_may_lack_a_dot(redirect_uri: str) -> None:
    text = f'{CODE_CLIENT}["https://fine.example/", "{redirect_uri}"]'

    assert find_mistakes(text) == [f"clients[0].redirect_uris[1]: {SCHEME}"]


@pytest.mark.clause("decided-password-min-length")
def test_a_short_password_is_refused_with_its_place() -> None:
    users = [f"{{username: u{number}, password: '{'pässwörd in Jülich'[:number]}'}}" for number in (8, 7, 12)]
    text = f"users: [{', '.join(users)}, {{username: hashed, password_hash: {HASH!r}}}]"
    told = "expected {} to 1024 characters in one line"

    assert find_mistakes(text) == [f"users[1].password: {told.format(8)}"]
    with pytest.raises(BadSeed) as refusal:
        parse_seed(text.encode(), 12)
    assert refusal.value.mistakes == tuple(f"users[{index}].password: {told.format(12)}" for index in (0, 1))


@pytest.mark.clause("decided-common-passwords")
@pytest.mark.parametrize(
    ("password", "told"),
    [
        ("Password1", "most common"),
        ("jennifer", "most common"),
        ("12341234", "most common"),
        ("9876543210", "most common"),
        ("        ", "most common"),
        ("Zoë.Brown@Example.com ", "own name"),
        ("ZOE\u0308.BROWN", "own name"),
        ("zoe\u0308 Example", "own name"),
        ("correct horse battery", ""),
    ],
    ids=ascii,
)
def test_a_password_that_is_guessed_first_is_refused(password: str, told: str) -> None:
    users = [{"username": "zoë.brown@example.com", "name": "Zoë Example", "password": password}]
    mistakes = find_mistakes(f"users: {msgspec.json.encode(users).decode()}")

    assert [told in mistake and mistake.startswith("users[0].password: ") for mistake in mistakes] == [True] * bool(
        told
    )


@pytest.mark.clause("decided-user-names-one-form")
def test_two_names_of_one_form_are_refused_with_both_places() -> None:
    names = ["Jürgen@MÜNCHEN.de", "ju\u0308rgen@xn--mnchen-3ya.de.\u200b"]
    users = [{"username": name, "password_hash": HASH} for name in names]
    text = f"users: {msgspec.json.encode(users).decode()}"

    assert find_mistakes(text) == ["users[1].username: is already defined at users[0].username"]
    (user,) = parse_seed(f"users: {msgspec.json.encode(users[:1]).decode()}".encode()).users
    assert user.username == "jürgen@münchen.de"


@pytest.mark.clause("decided-shown-names")
@pytest.mark.parametrize("mark", ["\u0007", "\u0085", "\u2028", "\u202e", "\u2067", "\u200f"], ids=ascii)
def test_invisible_and_bidi_characters_are_refused(mark: str) -> None:
    name = f"Example{mark}Shop"
    seed = {
        "realms": {"cep": {"client_id": "us", "issuer": "https://a.example", "name": name}},
        "clients": [{"client_id": "shop", "client_name": name, "client_secret": "secret of the shop"}],
        "users": [{"username": name, "name": name, "password_hash": HASH}],
    }
    places = [mistake.partition(":")[0] for mistake in find_mistakes(json.dumps(seed))]

    assert places == ["realms.cep.name", "clients[0].client_name", "users[0].username", "users[0].name"]


@pytest.mark.clause("decided-shown-names")
def test_shown_names_have_at_most_255_characters() -> None:
    seed = {
        "realms": {"cep": {"client_id": "us", "issuer": "https://a.example", "name": "ä" * 256}},
        "clients": [{"client_id": "shop", "client_name": "ä" * 256, "client_secret": "secret of the shop"}],
        "users": [{"username": name, "name": "ä" * int(name), "password_hash": HASH} for name in ("255", "256")],
    }
    places = [mistake.partition(":")[0] for mistake in find_mistakes(json.dumps(seed))]

    assert places == ["realms.cep.name", "clients[0].client_name", "users[1].name"]


@pytest.mark.clause("decided-user-names-one-form")
@pytest.mark.parametrize("mark", ["\u200b", "\u00ad", "\u200d", "\ufe0f", "\u3164", "\u00a0", "\u3000"], ids=ascii)
def test_no_name_in_realm_main_has_an_invisible_character(mark: str) -> None:
    """An identity provider's name for a user stays as it is."""
    names = [f"a{mark}b@example.com", f"a b{mark}@exam{mark}ple.com{mark}"]
    users = [{"username": name, "password_hash": HASH} for name in names] + [{"username": names[0], "realm": "cep"}]
    seed = {"realms": {"cep": {"client_id": "us", "issuer": "https://a.example"}}, "users": users}

    assert find_mistakes(msgspec.json.encode(seed).decode()) == [
        "users[0].username: expected a name without invisible characters, and no white space except spaces"
    ]


@pytest.mark.clause("decided-external-email-folded")
def test_email_users_are_listed_once_in_any_case() -> None:
    realm = "realms: {cep: {client_id: us, issuer: 'https://a.example', username_claim: %s}}\n"
    one, other = "{username: A@b.example, realm: cep}", "{username: a@B.example, realm: cep}"
    both = f"users: [{one}, {other}]\n"

    assert find_mistakes(both + realm % "email") == ["users[1].username: is already defined at users[0].username"]
    assert find_mistakes(both + realm % "sub") == []
    (user,) = parse_seed(f"users: [{one}]\n{realm % 'email'}".encode()).users
    assert user.username == "a@b.example"


def test_trust_in_addresses_needs_the_claim_that_has_them() -> None:
    realm = "realms: {cep: {client_id: us, issuer: 'https://a.example', trust_email: true, username_claim: %s}}"

    assert find_mistakes(realm % "sub") == ["realms.cep.trust_email: expected username_claim: email in the same entry"]
    assert find_mistakes(realm % "email") == []


@pytest.mark.clause("decided-seed-needed-parts", "6749-3.1.2.2-public-client-registers")
@pytest.mark.clause("6749-10.2-public-redirect-registered")
def test_the_code_grant_needs_a_redirect_uri() -> None:
    mistake = "clients[0].redirect_uris: the grant authorization_code needs at least one"

    assert find_mistakes(f"{CODE_CLIENT}[]") == [mistake]
    assert find_mistakes(f"{CLIENT}grant_types: [authorization_code]") == [mistake]


@pytest.mark.clause("6749-a.1-client-id-characters", "6749-a.2-client-secret-characters")
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("clients: [{client_id: 'ä'}]", "clients[0].client_id"),
        ('clients: [{client_id: "a\\nb"}]', "clients[0].client_id"),
        ('clients: [{client_id: a, client_secret: "b\\nc"}]', "clients[0].client_secret"),
        ("clients: [{client_id: a, client_secret: ''}]", "clients[0].client_secret"),
        (f"clients: [{{client_id: a, client_secret: {'x' * 1025}}}]", "clients[0].client_secret"),
        ("clients: [{client_id: a, client_secret_hash: 'sha256:short'}]", "clients[0].client_secret_hash"),
        (
            f"clients: [{{client_id: a, client_secret: b, client_secret_hash: '{HASH}'}}]",
            "clients[0].client_secret_hash",
        ),
        ("clients: [{client_id: a, introspect: true}]", "clients[0].introspect"),
        ("clients: [{client_id: a, revoke_users: true}]", "clients[0].revoke_users"),
        ("clients: [{client_id: a, manage_users: true}]", "clients[0].manage_users"),
    ],
)
def test_names_and_secrets_of_clients_have_their_form(text: str, place: str) -> None:
    assert [mistake.partition(": ")[0] for mistake in find_mistakes(text)] == [place]


@pytest.mark.clause("decided-client-lifetimes")
def test_lifetimes_are_numbers_or_text_with_a_unit() -> None:
    lives = "access_token_ttl: 10m, refresh_token_ttl: 1.5, session_max_age: '90', refresh_grace: 0"
    (client,) = parse_seed(f"clients: [{{client_id: app, {lives}}}]".encode()).clients

    assert (client.access_token_ttl, client.refresh_token_ttl) == (600, 1.5)
    assert (client.session_max_age, client.refresh_grace) == (90, 0)


@pytest.mark.clause("decided-client-lifetimes")
@pytest.mark.parametrize("value", ["10 m", "-1", "36501d", "true", "[10]", ".inf", "''", "0"])
def test_a_bad_lifetime_is_named_with_its_place(value: str) -> None:
    span = "seconds, or a number with s, m, h or d, such as 90, 1.5h or 30d"
    expected = "a duration greater than 0" if value == "0" else span

    assert find_mistakes(f"{CLIENT}session_max_age: {value}") == [f"clients[0].session_max_age: expected {expected}"]


@pytest.mark.clause("decided-seed-needed-parts", "6749-3.3-grammar")
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("scope: role:king", "clients[0].scope"),
        ("scope: realm:main  role:enduser", "clients[0].scope"),
        ("scope: realm:main\n    default_scope: role:enduser", "clients[0].default_scope"),
        ("scope: realm:main realm:cep\n    default_scope: realm:main realm:cep", "clients[0].default_scope"),
        ("grant_types: [client_credentials]", "clients[0].grant_types[0]"),
    ],
)
def test_scopes_and_grants_must_be_known(text: str, place: str) -> None:
    assert [mistake.partition(": ")[0] for mistake in find_mistakes(CLIENT + text)] == [place]


@pytest.mark.clause("decided-seed-needed-parts")
@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"{USER}roles: [enduser]", "users[0].password"),
        (f"{USER}password: x\n    password_hash: '{HASH}'", "users[0].password_hash"),
        (f"{USER}password_hash: plain", "users[0].password_hash"),
        (f"{USER}password_hash: $2y$13${'.' * 53}", "users[0].password_hash"),
        (f'{USER}password: "a\\nb"', "users[0].password"),
        (f"{USER}password: x\n    roles: [king]", "users[0].roles[0]"),
        (f"{USER}password: x\n    realm: elsewhere", "users[0].realm"),
        ('users: [{username: "a\\tb\\u0007", password: x}]', "users[0].username"),
        (f"users: [{{username: {'x' * 256}, password: x}}]", "users[0].username"),
        (f"{USER}password: x\n  - username: ALICE@example.com\n    password: y", "users[1].username"),
        (
            "realms: {cep: {client_id: us, issuer: 'https://a.example'}}\n"
            "users: [{username: a, realm: cep, password: x}]",
            "users[0].password",
        ),
    ],
)
def test_users_need_a_name_a_realm_and_in_main_a_password(text: str, place: str) -> None:
    assert place in [mistake.partition(": ")[0] for mistake in find_mistakes(text)]


@pytest.mark.parametrize(
    ("realm", "places"),
    [
        ("client_id: us", {"realms.cep", "realms.cep.authorization_endpoint", "realms.cep.token_endpoint"}),
        ("client_id: us, issuer: 'http://a.example'", {"realms.cep.issuer"}),
        ("client_id: us, issuer: 'https://a.example', default_roles: [king]", {"realms.cep.default_roles[0]"}),
        ("issuer: 'https://a.example'", {"realms.cep.client_id"}),
        ("client_id: us, issuer: 'http://127.0.0.1:9/'", set()),
        (
            "client_id: us, authorization_endpoint: 'https://a.example/a', token_endpoint: 'https://a.example/t', "
            "jwks_uri: 'https://a.example/k'",
            {"realms.cep.issuer"},
        ),
        (
            "client_id: us, authorization_endpoint: 'https://a.example/a', token_endpoint: 'https://a.example/t', "
            "jwks_uri: 'https://a.example/k', userinfo_endpoint: 'https://a.example/u'",
            set(),
        ),
        ("client_id: ü, issuer: 'https://a.example'", {"realms.cep.client_id"}),
        ("client_id: us, client_secret: ü, issuer: 'https://a.example'", {"realms.cep.client_secret"}),
        ("client_id: us, issuer: 'https://a.example', scope: 'openid  email'", {"realms.cep.scope"}),
        ("client_id: us, issuer: 'https://a.example', username_claim: ''", {"realms.cep.username_claim"}),
        ("client_id: us, issuer: 'https://a.example', username_claim: iss", {"realms.cep.username_claim"}),
        ("client_id: us, issuer: 'https://a.example', name: \"two\\nlines\"", {"realms.cep.name"}),
    ],
)
def test_realm_needs_its_endpoints(realm: str, places: set[str]) -> None:
    found = find_mistakes(f"realms: {{cep: {{{realm}}}}}")

    assert {mistake.partition(": ")[0] for mistake in found} == places


@pytest.mark.parametrize("name", ["Cep", "5", "main"])
def test_a_realm_has_a_plain_name(name: str) -> None:
    text = f"realms: {{{name}: {{client_id: us, issuer: 'https://a.example'}}}}"

    assert any(mistake.startswith(f"realms.{name}: ") for mistake in find_mistakes(text))
