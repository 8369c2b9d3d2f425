"""`user import`: what operators and users see of it."""

import json
from pathlib import Path

import httpx2
import pytest
import redis

from service.crypto.password_hashing import hash_password
from service.registry.user_import import MAX_LINE_BYTES, MAX_MISTAKES
from tests.admin.conftest import Admin
from tests.support.clients_and_users import ALICE, PHONE_APP, UserCredentials

EVE = UserCredentials("eve@example.com", "eve's own password")
ZOE = UserCredentials("zoe@example.com", "zoe's own password")
EVE_LINE = json.dumps({"username": EVE.username, "password_hash": hash_password(EVE.password), "roles": ["enduser"]})
ZOE_LINE = json.dumps({"username": ZOE.username, "password": ZOE.password, "roles": ["enduser"]})


@pytest.mark.clause("decided-user-import")
async def test_imported_users_log_in_with_their_old_passwords(
    admin: Admin, http: httpx2.AsyncClient, tmp_path: Path
) -> None:
    file = tmp_path / "users.jsonl"
    lines = f"{EVE_LINE}\n\n{ZOE_LINE}\r\n" + json.dumps({"username": ALICE.username, "name": "Alice A."})
    file.write_text(lines, "utf-8-sig")  # as Excel and PowerShell write it

    first, again = await admin("user", "import", str(file)), await admin("user", "import", str(file), "--json")

    assert "2 added, 1 updated, 0 unchanged, 0 users logged out" in first.output
    assert again.json == {"added": 0, "updated": 0, "unchanged": 3, "users_logged_out": 0}
    for person in (EVE, ZOE, ALICE):
        assert (await PHONE_APP.log_in(http, person)).status_code == 200
        wrong = UserCredentials(person.username, "wrong")
        assert (await PHONE_APP.log_in(http, wrong)).json()["error"] == "invalid_grant"
    shown = (await admin("user", "show", ALICE.username, "--json")).json
    assert (shown["name"], shown["roles"]) == ("Alice A.", ["enduser", "organisation"])


HASH = hash_password("password")
BAD_LINES = {
    b'{"username": "new@example.com"}': "line 2 (new@example.com): password: password or password_",
    b'{"username": "EVE@example.com", "name": "Eve"}': "line 2 (eve@example.com): username: is a duplicate of line 1",
    b'{"username": "alice@example.com", "roles": ["boss"]}': "line 2 (alice@example.com): roles[0]: expected one of",
    b'{"username": "alice@example.com", "realm": "cep"}': "line 2 (alice@example.com): realm: expected main",
    b'[{"username": "a"}]': "line 2: expected one JSON object per line, in UTF-8: Expected `object`, got `array`",
    b'{"username": "a@example.com", "us\\u0065rname": "b"}': "line 2: expected one JSON object per line, in UTF-8: ",
    b'{"username": "alice@example.com", "disabled": null}': "line 2 (alice@example.com): disabled: expected a value",
    b'{"username": "a", "name": "%b"}' % (256 * b"x"): "line 2 (a): name: expected at most 255 characters",
    b'{"username": "a\\u200bb", "password": "long enough"}': "line 2 (a\\u200bb): username: expected a name without",
    b'{"username": "%b"}' % (256 * b"x"): "line 2: username: expected 1 to 255 characters",
    b'{"username": "zoe@example.com", "password_hash": "md5$x$y"}': "line 2 (zoe@example.com): password_hash: begins",
    b"\xef\xbb\xbf{}": "line 2: expected one JSON object per line, in UTF-8: ",
    b"username,password": "line 2: expected one JSON object per line, in UTF-8: JSON is malformed",
    b'{"username": "\xff"}': "line 2: expected one JSON object per line, in UTF-8: ",
    b"[" * 5000: "line 2: expected one JSON object per line, in UTF-8: ",
    b'{"name": "'
    + b"x" * MAX_LINE_BYTES: f"line 2: expected one JSON object per line, of at most {MAX_LINE_BYTES} byt",
}


@pytest.mark.clause("decided-user-import")
@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: repr(line[:50]))
async def test_a_mistake_is_told_with_its_line_and_nothing_is_written(
    admin: Admin, store: redis.Redis, tmp_path: Path, line: bytes
) -> None:
    file, before = tmp_path / "users.jsonl", set(store.scan_iter())
    file.write_bytes(EVE_LINE.encode() + b"\n" + line)

    refused = await admin("user", "import", str(file))

    assert (refused.status, refused.output) == (2, "")
    assert f"errors in {file}:\n{BAD_LINES[line]}" in refused.aside
    assert set(store.scan_iter()) == before


@pytest.mark.clause("decided-user-import")
@pytest.mark.parametrize(("count", "rest"), [(1000, []), (20_000, ["the check stopped after 10000 errors"])])
async def test_each_mistake_is_told_up_to_a_bound(admin: Admin, tmp_path: Path, count: int, rest: list[str]) -> None:
    file = tmp_path / "users.jsonl"
    file.write_text("{}\n" * count)

    _, *lines = (await admin("user", "import", str(file))).aside.splitlines()

    told = min(count, MAX_MISTAKES)
    assert lines == [*(f"line {n}: username: is missing" for n in range(1, told + 1)), *rest]


@pytest.mark.clause("decided-user-import")
async def test_yaml_file_has_one_error(admin: Admin, tmp_path: Path) -> None:
    file = tmp_path / "users.yaml"
    file.write_text("users:\n- username: alice@example.com\n")

    _, *lines = (await admin("user", "import", str(file))).aside.splitlines()

    assert len(lines) == 1
    assert lines[0].startswith("line 1: expected one JSON object per line, in UTF-8: ")


@pytest.mark.parametrize("name", ["missing", ""])
async def test_file_that_cannot_be_read_is_wrong_usage(admin: Admin, tmp_path: Path, name: str) -> None:
    assert (await admin("user", "import", str(tmp_path / name))).status == 2
