"""A seed file of any bytes is a seed, or a list of mistakes that repeats no password."""

import json
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.crypto.keyring import Keyring
from service.protocol.client import Client
from service.protocol.grammar import is_showable
from service.protocol.provider import IdentityProvider
from service.protocol.user import MAX_NAME_CHARACTERS, User, identify_user
from service.registry.records import make_client, make_provider, make_user
from service.registry.seed_file.entries import BadSeed, Seed, UserEntry
from service.registry.seed_file.plan import Item, plan_edit
from service.registry.seed_file.read import parse_seed
from service.registry.seed_file.write import make_sections, write_seed
from tests.conftest import SEED
from tests.fuzz.generators import bent, bent_text, data, printable, text, utf8
from tests.support.servers import CHECKOUT

SEEDS = (SEED.read_bytes(), (CHECKOUT / "examples" / "seed.yaml").read_bytes())
PASSWORD = "Tr0ub4dor"

YAML = (
    *(
        "- ",
        "? ",
        ": ",
        "| ",
        "> ",
        "#",
        "---\n",
        "...\n",
        "%YAML 1.1\n",
        "%TAG ! tag:yaml.org,2002:\n",
        "\n  ",
        "\n- ",
    ),
    *("&a ", "*a", "<<: *a", "<<: ", "[", "]", "{", "}", ",", '"', "'", "\\x00", "\\ud800", "~", ".nan", "-.inf"),
    *("!!bool x", "!!int ''", "!!int _", "!!float ''", "!!timestamp x", "!!null x", "!!str ", "!!set ", "!!omap "),
    *("!!binary =", "!!seq x", "!!map x", "!!python/name:os.x", "!x ", "2001-13-45", "0001-01-01T00:00:00+23:00"),
    *("0x", "0b", "0o7", "1_", "1:99", "12e03", "0x" + "f" * 5000, "realms: ", "clients: ", "users: "),
)
pieces = st.one_of(st.sampled_from([piece.encode() for piece in YAML]), data)


def read(seed: bytes) -> Seed | None:
    """Return the seed, or None for mistakes. Each mistake must be a printable line."""
    try:
        return parse_seed(seed)
    except BadSeed as refusal:
        mistakes = refusal.mistakes
    assert mistakes
    assert all(mistake.isprintable() for mistake in mistakes)
    return None


def as_tree(seed: Seed) -> dict[str, Any]:
    return {
        "realms": msgspec.to_builtins(seed.realms),
        "clients": msgspec.to_builtins(seed.clients),
        "users": msgspec.to_builtins(seed.users),
    }


@given(st.one_of(bent(st.sampled_from(SEEDS), pieces), st.lists(pieces, max_size=8).map(b"".join)))
@example(b"\xff\xfe")
@example(b"users: !!bool x")
@example(b"users: !!timestamp x")
@example(b"users: !!int ''")
def test_random_bytes_are_a_seed_or_mistakes(some: bytes) -> None:
    seed = read(some)

    if seed is not None:
        again = read(msgspec.json.encode(as_tree(seed)))
        assert again is not None
        assert as_tree(again) == as_tree(seed)


@given(
    st.sampled_from(
        ["", "!", "!!", "*", "&", "!!int ", "!!bool ", "!!float ", "!!timestamp ", "@", "`", "%", "|", ">", "- "]
    ),
    st.sampled_from(["", ":", "#", "'", '"', "]", "}", ",", "\n", " x", "\0", "&"]),
    st.sampled_from(["password", "password_hash", "client_secret", "client_secret_hash"]),
)
def test_mistakes_never_repeat_a_password(before: str, behind: str, field: str) -> None:
    """A password may look like a tag or an alias of YAML, and must not appear in the log."""
    section, name = ("users", "username") if "password" in field else ("clients", "client_id")
    for value in (before + PASSWORD + behind, f"'{before}{PASSWORD}{behind}'", f"[{before}{PASSWORD}{behind}]"):
        told = ""
        try:
            parse_seed(f"{section}:\n- {name}: x\n  {field}: {value}\n".encode())
        except BadSeed as refusal:
            told = str(refusal)
        assert PASSWORD not in told, value


@pytest.mark.clause("decided-export")
@given(
    st.one_of(
        printable, st.sampled_from(["null", "yes", "0x1F", "1e3", "1_000", "1:99", "~", "=", "<<", "2001-01-01"])
    ),
    st.one_of(utf8, text).map(lambda name: name[:MAX_NAME_CHARACTERS]).filter(is_showable),
    st.sampled_from(["no", "null", "true", "cep"]),
    st.booleans(),
    st.none() | st.integers(1, 3_153_600_000_000).map(lambda ms: ms / 1000 if ms % 1000 else ms // 1000),
)
def test_an_exported_entry_makes_its_record_again(
    identifier: str, name: str, realm: str, is_set: bool, seconds: float | None
) -> None:
    hashed, roles = "sha256:" + "a" * 43, ("enduser", "partner")
    provider = IdentityProvider(client_id=identifier, issuer="https://login.example", name=name, default_roles=roles)
    client = Client(
        client_id=identifier,
        client_secret_hash=hashed,
        client_name=name,
        redirect_uris=("https://a.example/", "com.example.app:/x"),
        grant_types=("authorization_code",),
        scope="realm:main role:enduser",
        introspect="all" if is_set else False,
        revoke_users=is_set,
        manage_users=is_set,
        access_token_ttl=seconds,
        refresh_grace=0 if is_set else seconds,
        require_pkce=is_set,
        disabled=is_set,
    )
    user = User(realm=realm, username="1e3@example.com", roles=roles, name=name, disabled=is_set)

    seed = parse_seed(write_seed(make_sections({realm: provider}, [client], [user])).encode())

    assert make_provider(realm, seed.realms[realm], None, Keyring([b"1" * 32])) == provider
    assert make_client(seed.clients[0], None) == client
    assert make_user(seed.users[0], None) == user


def test_yaml_aliases_are_not_multiplied() -> None:
    """The laughs of a billion aliases: each list of nine is nine of the one before."""
    lines = ["x0: &x0 [a]", *(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 40))]
    for rest in ("users: *x39", "users: [*x39]", "users: [{username: *x39}]", "clients: [{redirect_uris: *x39}]"):
        assert read("\n".join([*lines, rest]).encode()) is None


KNOWN = UserEntry.__struct_fields__
APPLIED = (
    '{"username":"a@example.com","password":"key:digest","roles":["enduser"],"disabled":true,"added":[{"since":1}]}'
)


@example("[" * 100_000)
@example(APPLIED.replace('"key:digest"', "null"))
@example(APPLIED.replace("key", r"\ud800"))
@given(st.one_of(bent_text(APPLIED), text.filter(bool)))
def test_seed_entry_as_last_applied_is_read_or_left_alone(stored: str) -> None:
    entry = UserEntry(username="a@example.com", password="a password")
    item, keyring = Item("user", entry.username, entry, identify_user("main", entry.username)), Keyring([b"1" * 32])
    plan = partial(plan_edit, keyring, item, stored.encode(errors="replace").decode())

    assert plan(force=False).trouble or set(json.loads(stored)) <= {*json.loads(plan(force=False).applied), *KNOWN}
    assert not plan(force=True).trouble
