"""A user base that moved in with the hashes of other systems logs in, and has argon2id afterwards."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
import redis
from passlib.hash import bcrypt, django_bcrypt_sha256, django_pbkdf2_sha256, pbkdf2_sha512

from service.crypto.hash_kinds import digest_hash
from service.crypto.password_hashing import verify_password
from service.protocol.errors import InvalidGrant
from service.protocol.user import User, identify_user
from service.realms.main import MainRealm
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.entries import Seed
from service.registry.seed_file.read import parse_seed
from service.worker import Worker
from tests.store.sessions import Sessions
from tests.support.at_rest import read_everything
from tests.support.clients_and_users import UserCredentials

pytestmark = pytest.mark.clause("decided-foreign-hashes")

USERS = 1000
CONTENDERS = 20
HASHERS: list[Callable[[str], str]] = [
    bcrypt.using(rounds=4, ident="2y").hash,
    django_bcrypt_sha256.using(rounds=4).hash,
    django_pbkdf2_sha256.using(rounds=1).hash,
    pbkdf2_sha512.using(rounds=1).hash,
]


def make_hashes(count: int) -> dict[str, str]:
    """Return the hashes of users by their names. The password of each is `old <name>`."""
    names = [f"user{number}@example.com" for number in range(count)]
    return {name: HASHERS[number % len(HASHERS)](f"old {name}") for number, name in enumerate(names)}


def make_seed(hashes: dict[str, str], shown: str = "Moved") -> Seed:
    users = [
        {"username": name, "password_hash": text, "roles": ["enduser"], "name": shown} for name, text in hashes.items()
    ]
    return parse_seed(msgspec.json.encode({"clients": [{"client_id": "phone-app"}], "users": users}))


async def find_user(worker: Worker, name: str) -> User:
    user = await worker.registry.users.find(identify_user("main", name))
    assert user is not None
    return user


async def log_in(worker: Worker, name: str, password: str) -> bool:
    try:
        await MainRealm(worker.registry, worker.users, worker.passwords).log_in(name, password, "", 0)
    except InvalidGrant:
        return False
    return True


async def test_a_moved_user_base_logs_in_and_has_argon2id(
    sessions: Sessions, seeding: Seeding, store: redis.Redis
) -> None:
    worker, hashes = sessions.worker, make_hashes(USERS)
    await seeding.apply(make_seed(hashes))
    started = [await sessions.start(UserCredentials("main", name, "")) for name in list(hashes)[:4]]
    for name, old_hash in hashes.items():
        assert not await log_in(worker, name, "another")
        assert (await find_user(worker, name)).password_hash == old_hash
        for password in (f"old {name}", "another", f"old {name}"):
            assert await log_in(worker, name, password) == (password != "another")
            assert ((await find_user(worker, name)).password_hash or "").startswith("$argon2id$")
    renewed = [await find_user(worker, name) for name in hashes]

    for shown in ("Moved", "Moved again"):
        await seeding.apply(make_seed(hashes, shown))
        users = [await find_user(worker, name) for name in hashes]
        assert {user.name for user in users} == {shown}
        assert [user.password_hash for user in users] == [user.password_hash for user in renewed]
        assert [sessions.live(session) for session in started] == [[True]] * 4
    at_rest = "\n".join(read_everything(store))
    assert not [old_hash for old_hash in hashes.values() if old_hash.rpartition("$")[2] in at_rest]


async def test_first_logins_at_once_are_all_accepted(worker: Worker, seeding: Seeding, store: redis.Redis) -> None:
    hashes = make_hashes(len(HASHERS))
    await seeding.apply(make_seed(hashes))
    for name, old_hash in hashes.items():
        before = await find_user(worker, name)
        tried = [f"old {name}" if number % 2 else "another" for number in range(2 * CONTENDERS)]
        accepted = await asyncio.gather(*(log_in(worker, name, password) for password in tried))

        user = await find_user(worker, name)
        assert accepted == [password != "another" for password in tried]
        assert verify_password(f"old {name}", user.password_hash or "") == (True, None)
        assert (user.upgraded_from, user.revision) == (digest_hash(old_hash), before.revision)
        assert not [text for text in read_everything(store) if old_hash in text]
