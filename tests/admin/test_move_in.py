"""The scripts of examples/move_in migrate users."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from service.crypto.password_hashing import hash_password
from tests.admin.conftest import Admin
from tests.support.clients_and_users import PHONE_APP, UserCredentials
from tests.support.servers import CHECKOUT

FIND_OLD_HASHES = CHECKOUT / "examples" / "move_in" / "old_hashes.py"
CAROL = UserCredentials("carol@example.com", "carol's own password")

EXPORTS: Final = {
    # Django 5.2 wrote it: `manage.py dumpdata auth.user`, of users with each of its hashers, at low costs.
    "django": (
        {
            "pbkdf2-sha256@example.com": "the password of pbkdf2_sha256",
            "pbkdf2-sha1@example.com": "the password of pbkdf2_sha1",
            "argon2@example.com": "the password of argon2",
            "bcrypt-sha256@example.com": "the password of bcrypt_sha256",
            "bcrypt@example.com": "the password of bcrypt",
            "scrypt@example.com": "the password of scrypt",
        },
        "left out: md5@example.com: the hash is md5$\n"
        "left out: unusable@example.com: no password\n"
        "left out: 10: no address\n",
        ("argon2@example.com", "3", "Zoë Example"),
    ),
    # In the form of `kc.sh export --users realm_file`. Keycloak made the first three hashes.
    "keycloak": (
        {
            "argon2@example.com": "password",
            "pbkdf2-sha256@example.com": "admin",
            "pbkdf2-sha512@example.com": "password",
            "by-name": "the password of by-name",
        },
        "left out: federated@example.com: no password\nleft out: bcrypt@example.com: the hash is bcrypt\n",
        ("argon2@example.com", "523b7841-839d-454e-b990-29b404f18db9", "Zoë Example"),
    ),
}
"""For each system its passwords by user names, what its script tells, and a user's name, id and full name."""


def run(*command: str, typed: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], input=typed, text=True, check=True, capture_output=True)


def export(system: str, typed: str, file: Path) -> str:
    """Write the file to import. Returns what the script tells of accounts that it leaves out."""
    done = run(str(CHECKOUT / "examples" / "move_in" / f"from_{system}.py"), typed=typed)
    file.write_text(done.stdout)
    return done.stderr


@pytest.mark.clause("decided-user-import", "decided-foreign-hashes")
@pytest.mark.parametrize("system", EXPORTS)
async def test_exported_users_log_in_and_keep_their_ids(
    admin: Admin, http: httpx2.AsyncClient, tmp_path: Path, system: str
) -> None:
    passwords, left_out, (username, user_id, name) = EXPORTS[system]
    file, exported = tmp_path / "users.jsonl", Path(__file__).parent / "exports" / f"{system}.json"

    told = export(system, exported.read_text(), file)
    imported = await admin("user", "import", str(file), "--json")

    assert (told, imported.json["added"]) == (left_out, len(passwords) + 1)
    for user, password in passwords.items():
        assert (await PHONE_APP.log_in(http, UserCredentials(user, password))).status_code == 200, user
    inactive = UserCredentials("inactive@example.com", "the password of inactive")
    assert (await PHONE_APP.log_in(http, inactive)).status_code == 400
    shown = (await admin("user", "show", username, "--json")).json
    assert (shown["id"], shown["name"], shown["roles"]) == (user_id, name, ["enduser"])
    assert (await admin("user", "show", inactive.username, "--json")).json["disabled"]


@pytest.mark.parametrize(
    ("system", "typed", "told"),
    [
        ("django", "", "expected what `manage.py dumpdata` writes: "),
        ("django", '[{"model": "auth.user", "fields": {"password": "!", "email": "a@b.c"}}]', "a@b.c: no primary key"),
        (
            "django",
            '[{"model": "auth.group", "pk": 1, "fields": {}}, {"pk": 2, "fields": {"password": "!"}}]',
            "2: no address",
        ),
        ("keycloak", "[{}]", "expected one realm with its users"),
        (
            "keycloak",
            '{"users": [{"username": "a", "credentials": [{"type": "password", "hashedSaltedValue": "x"}]}]}',
            "a: the hash is of an old Keycloak",
        ),
    ],
)
def test_script_names_what_it_cannot_read(system: str, typed: str, told: str) -> None:
    command = [sys.executable, str(CHECKOUT / "examples" / "move_in" / f"from_{system}.py")]
    done = subprocess.run(command, input=typed, text=True, capture_output=True, check=False)

    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.clause("decided-user-import")
async def test_only_changes_follow_a_second_export(admin: Admin, tmp_path: Path) -> None:
    def account(pk: int, **fields: Any) -> dict[str, Any]:
        password = hash_password(CAROL.password).removeprefix("$")
        every = {"password": f"argon2${password}", "is_active": True, "first_name": "", "last_name": ""}
        return {"model": "auth.user", "pk": pk, "fields": every | fields}

    accounts = [account(1, email=CAROL.username, first_name="Carol"), account(2, email="dave@example.com")]
    file = tmp_path / "users.jsonl"
    export("django", json.dumps(accounts), file)
    await admin("user", "import", str(file))
    accounts[0]["fields"]["last_name"] = "Example"
    export("django", json.dumps(accounts), file)

    second = await admin("user", "import", str(file), "--json")

    assert second.json == {"added": 0, "updated": 1, "unchanged": 1, "users_logged_out": 0}
    shown = (await admin("user", "show", CAROL.username, "--json")).json
    assert (shown["name"], shown["id"]) == ("Carol Example", "1")


async def test_users_with_old_hashes_are_found_and_disabled(
    admin: Admin, http: httpx2.AsyncClient, tmp_path: Path
) -> None:
    old_hash = hash_password(CAROL.password).replace("argon2id", "argon2i")
    users, disable = tmp_path / "users.jsonl", tmp_path / "disable.jsonl"
    users.write_text(f'{{"username": "{CAROL.username}", "password_hash": "{old_hash}", "roles": ["enduser"]}}')
    await admin("user", "import", str(users))

    exported = (await admin("export")).output
    disable.write_text(run(str(FIND_OLD_HASHES), typed=exported).stdout)

    assert (await admin("user", "import", str(disable), "--json")).json["updated"] == 1
    assert (await PHONE_APP.log_in(http, CAROL)).status_code == 400
