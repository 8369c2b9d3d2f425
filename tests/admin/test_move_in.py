"""The programs and commands of docs/move-in.md do what the page says."""

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from service.crypto.password_hashing import hash_password
from tests.admin.conftest import Admin
from tests.support.clients_and_users import PHONE_APP, UserCredentials
from tests.support.servers import CHECKOUT

PAGE = (CHECKOUT / "docs" / "move-in.md").read_text()
EXPORT, FIND_OLD_HASHES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CAROL = UserCredentials("carol@example.com", "carol's own password")
DAVE = UserCredentials("dave@example.com", "dave's own password")


def run(folder: Path, *command: str, typed: str = "") -> str:
    return subprocess.run(command, cwd=folder, input=typed, text=True, check=True, capture_output=True).stdout


@pytest.fixture
def accounts(tmp_path: Path) -> sqlite3.Connection:
    """The table of another system: a user, a disabled one, and one without a password."""
    accounts = sqlite3.connect(tmp_path / "db.sqlite3", isolation_level=None)
    accounts.execute("CREATE TABLE auth_user (id, email, password, first_name, last_name, is_active)")
    hashes = [hash_password(person.password) for person in (CAROL, DAVE)]
    rows = [
        (41, CAROL.username, hashes[0], "Carol", "", 1),
        (42, DAVE.username, hashes[1], "", "", 0),
        (43, "eve", "!x", "", "", 1),
    ]
    accounts.executemany("INSERT INTO auth_user VALUES (?, ?, ?, ?, ?, ?)", rows)
    return accounts


@pytest.mark.clause("decided-user-import")
async def test_exported_users_move_in_and_only_changes_follow(
    admin: Admin, http: httpx2.AsyncClient, accounts: sqlite3.Connection, tmp_path: Path
) -> None:
    def export(name: str) -> str:
        (tmp_path / name).write_text(run(tmp_path, sys.executable, "-c", EXPORT))
        return str(tmp_path / name)

    first = await admin("user", "import", export("users.jsonl"), "--json")
    statuses = [(await PHONE_APP.log_in(http, person)).status_code for person in (CAROL, DAVE)]
    accounts.execute("UPDATE auth_user SET is_active = 1, last_name = 'Example' WHERE first_name = 'Carol'")
    second = await admin("user", "import", export("users-today.jsonl"), "--json")

    assert (first.json["added"], statuses) == (2, [200, 400])
    assert second.json == {"added": 0, "updated": 1, "unchanged": 1, "sessions_ended": 0}
    shown = (await admin("user", "show", CAROL.username, "--json")).json
    assert (shown["name"], shown["id"]) == ("Carol Example", "41")


async def test_users_with_old_hashes_are_found_and_disabled(
    admin: Admin, http: httpx2.AsyncClient, tmp_path: Path
) -> None:
    old_hash = hash_password(CAROL.password).replace("argon2id", "argon2i")
    users, disable = tmp_path / "users.jsonl", tmp_path / "disable.jsonl"
    users.write_text(f'{{"username": "{CAROL.username}", "password_hash": "{old_hash}", "roles": ["enduser"]}}')
    await admin("user", "import", str(users))

    exported = (await admin("export")).output
    disable.write_text(run(tmp_path, sys.executable, "-c", FIND_OLD_HASHES, typed=exported))

    assert (await admin("user", "import", str(disable), "--json")).json["updated"] == 1
    assert (await PHONE_APP.log_in(http, CAROL)).status_code == 400
