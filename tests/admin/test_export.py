"""`export`: the registry as a seed file that makes the same registry again, also under another secret key."""

import stat
from pathlib import Path

import pytest
import redis
import yaml

from tests.admin.conftest import Admin
from tests.conftest import SEED
from tests.support.clients_and_users import ALICE, BOB

pytestmark = pytest.mark.clause("decided-export")

SECRET = "secret-at-the-organisation"
REALM = f"""
realms:
  cep: {{client_id: us, client_secret: {SECRET}, issuer: "http://127.0.0.1:1", default_roles: [enduser]}}
"""


@pytest.fixture
async def exported(admin: Admin, tmp_path: Path) -> Path:
    """The export of a registry with a realm, and with changes of the console."""
    seed = tmp_path / "seed.yaml"
    seed.write_text(SEED.read_text() + REALM)
    for words in (
        ("seed", str(seed)),
        ("user", "disable", BOB.username, "--yes"),
        ("user", "create", "1e3@example.com", "--role", "enduser", "--name", "yes: #é 😀"),
        ("user", "create", "null", "--realm", "cep", "--role", "enduser"),
        ("client", "rotate-secret", "web-shop", "--overlap", "24h"),
        ("client", "create", "0x1F", "--name", "- no", "--introspect", "--session-max-age", "0.5"),
        ("client", "update", "0x1F", "--refresh-grace", "0", "--access-token-ttl", "1h"),
        ("client", "disable", "reader", "--yes"),
    ):
        is_secret_typed = words[:2] == ("user", "create") and "cep" not in words
        answer = await admin(*words, typed="a password of a user\n" if is_secret_typed else None)
        assert answer.status == 0, answer.aside
    file = tmp_path / "export.yaml"
    assert (await admin("export", str(file))).status == 0
    return file


def read_file(file: Path) -> tuple[int, str]:
    return stat.S_IMODE(file.stat().st_mode), file.read_text()


async def test_an_export_changes_nothing_where_it_was_made(admin: Admin, exported: Path, store: redis.Redis) -> None:
    client, realm = store.get("client:{registry}:web-shop"), store.get("realm:{registry}:cep")

    assert "No changes." in (await admin("seed", str(exported), "--dry-run")).output
    for words in ((), ("--force", "--yes")):
        assert (await admin("seed", str(exported), *words)).status == 0
        assert store.get("client:{registry}:web-shop") == client
        assert store.get("realm:{registry}:cep") == realm


async def test_an_export_makes_the_same_registry_elsewhere(
    admin: Admin, exported: Path, store: redis.Redis, environment: dict[str, str]
) -> None:
    text = (await admin("export")).output
    store.flushall()
    environment["TOKEN_SERVICE_SECRET_KEY"] = "another secret key of 32 bytes or more"

    assert (await admin("seed", str(exported))).status == 0
    assert (await admin("export")).output == text
    realm = [each for each in (await admin("doctor", "--json")).json if each["subject"] == "realm cep"]
    assert realm[0]["message"].startswith("no client secret")


async def test_an_export_is_private_and_has_no_secrets(exported: Path) -> None:
    mode, text = read_file(exported)
    tree = yaml.safe_load(text)

    assert mode == 0o600
    assert SECRET not in text
    assert ALICE.password not in text
    assert tree["realms"]["cep"] == {"client_id": "us", "issuer": "http://127.0.0.1:1", "default_roles": ["enduser"]}
    names = [user["username"] for user in tree["users"]]
    assert names == ["null", "1e3@example.com", ALICE.username, BOB.username, "meter@example.com"]


async def test_the_export_of_an_empty_store_is_a_seed(admin: Admin, store: redis.Redis, tmp_path: Path) -> None:
    store.flushall()
    file = tmp_path / "empty.yaml"

    assert (await admin("export", str(file))).status == 0
    assert "No changes." in (await admin("seed", str(file), "--dry-run")).output
    assert (await admin("export", str(tmp_path / "missing" / "file"))).status == 2
