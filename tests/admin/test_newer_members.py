"""A member of a record that only a newer version knows outlives each change, on each way to make one."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import redis

from service.protocol.user import identify_user
from service.store.keys import registry_key, user_key, user_seed_key
from tests.admin.conftest import Admin
from tests.conftest import SEED
from tests.support.browser import SESSIONS, Browser
from tests.support.clients_and_users import BOB, PHONE_APP, UserCredentials, put_user
from tests.support.weak_hashes import BCRYPT_HASH

MEMBER = '"added":{"since":123456789012345678901234567890,"list":[],"share":0.1}'
IDENTITY = identify_user("main", BOB.username)
REALM = 'realms:\n  cep: {client_id: us, client_secret: a secret at the organisation, issuer: "https://id.example"'


class Place(NamedTuple):
    """A text in Redis. The field is empty if the key has a string."""

    key: str
    field: str = ""

    def read(self, store: redis.Redis) -> str:
        return str(store.hget(self.key, self.field) if self.field else store.get(self.key))

    def write(self, store: redis.Redis, text: str) -> None:
        store.hset(self.key, self.field, text) if self.field else store.set(self.key, text)


CLIENT, REALM_RECORD = Place(registry_key("client", "web-shop")), Place(registry_key("realm", "cep"))
USER = Place(user_key(IDENTITY), "record")
ENTRIES = (
    Place(registry_key("seed"), "client:web-shop"),
    Place(registry_key("seed"), "realm:cep"),
    Place(user_seed_key(IDENTITY.shard), IDENTITY.digest),
)
ALL = (CLIENT, REALM_RECORD, USER, *ENTRIES)
SEED_EDITS = {"client_name: Web Shop": "client_name: Shop", "name: Bob": "name: Robert", "id.example": "login.example"}


class Operator(NamedTuple):
    """A person at the console, and a browser."""

    admin: Admin
    browser: Browser
    store: redis.Redis
    folder: Path

    async def run(self, *words: str, typed: str | None = None) -> None:
        answer = await self.admin(*words, typed=typed)
        assert answer.status == 0, answer.aside

    async def seed(self, edits: dict[str, str], *options: str) -> None:
        text = f"{SEED.read_text()}\n{REALM}}}\n"
        for before, after in edits.items():
            assert before in text
            text = text.replace(before, after)
        (self.folder / "seed.yaml").write_text(text)
        await self.run("seed", str(self.folder / "seed.yaml"), *options, "--yes")

    async def import_name(self) -> None:
        (self.folder / "users.jsonl").write_text(json.dumps({"username": BOB.username, "name": "Robert"}))
        await self.run("user", "import", str(self.folder / "users.jsonl"), "--yes")

    async def put_name(self) -> None:
        assert (await put_user(self.browser.http, BOB.username, {"name": "Robert"})).status_code == 200

    async def log_in_with_old_hash(self) -> None:
        """Log in as a user whose password has a hash of another system, which the login replaces."""
        record = USER.read(self.store)
        USER.write(self.store, record.replace(json.loads(record)["password_hash"], BCRYPT_HASH))
        person = UserCredentials(BOB.username, "a password")
        assert (await PHONE_APP.log_in(self.browser.http, person)).status_code == 200
        assert BCRYPT_HASH not in USER.read(self.store)

    async def change_own_password(self) -> None:
        await self.browser.sign_in(BOB)
        fields = {"current": BOB.password, "new": "a new password of Bob's", "repeated": "a new password of Bob's"}
        page = await self.browser.open(SESSIONS)
        assert (await self.browser.submit(page, "/sessions/password", fields)).status_code == 200


CHANGES: dict[str, tuple[Callable[[Operator], Awaitable[None]], tuple[Place, ...]]] = {
    "client update": (lambda by: by.run("client", "update", "web-shop", "--name", "Shop"), (CLIENT,)),
    "client disable": (lambda by: by.run("client", "disable", "web-shop", "--yes"), (CLIENT,)),
    "client rotate-secret": (lambda by: by.run("client", "rotate-secret", "web-shop", "--yes"), (CLIENT,)),
    "user update": (lambda by: by.run("user", "update", BOB.username, "--name", "Robert"), (USER,)),
    "user disable": (lambda by: by.run("user", "disable", BOB.username, "--yes"), (USER,)),
    "user set-password": (
        lambda by: by.run("user", "set-password", BOB.username, "--yes", typed="a new password of Bob's\n"),
        (USER,),
    ),
    "user import": (Operator.import_name, (USER,)),
    "PUT of a user": (Operator.put_name, (USER,)),
    "login with an old hash": (Operator.log_in_with_old_hash, (USER,)),
    "password page": (Operator.change_own_password, (USER,)),
    "seed": (lambda by: by.seed(SEED_EDITS), ALL),
    "seed --force": (lambda by: by.seed(SEED_EDITS, "--force"), ALL),
}


@pytest.mark.clause("decided-newer-members")
@pytest.mark.parametrize("way", CHANGES)
async def test_member_of_a_newer_version_outlives_a_change(
    admin: Admin, browser: Browser, store: redis.Redis, tmp_path: Path, way: str
) -> None:
    operator = Operator(admin, browser, store, tmp_path)
    change, places = CHANGES[way]
    await operator.seed({})
    for place in places:
        place.write(store, f"{place.read(store)[:-1]},{MEMBER}}}")
    before = [place.read(store) for place in places]

    await change(operator)

    after = [place.read(store) for place in places]
    assert all(old != new for old, new in zip(before, after, strict=True)), after
    assert [text.count(MEMBER) for text in after] == [1] * len(places), after


@pytest.mark.clause("decided-newer-members")
async def test_known_member_with_its_default_is_left_out(admin: Admin, store: redis.Redis, tmp_path: Path) -> None:
    """A realm's record and entry leave out such a member, whose old value must not be taken for an unknown one."""
    operator = Operator(admin, browser=None, store=store, folder=tmp_path)  # type: ignore[arg-type]
    await operator.seed({'issuer: "https://id.example"': 'issuer: "https://id.example", name: An Organisation'})
    await operator.seed({})

    assert "An Organisation" not in REALM_RECORD.read(store) + ENTRIES[1].read(store)
