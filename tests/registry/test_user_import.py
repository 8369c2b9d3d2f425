"""An import of users is whole after any interruption, and loses no change that is made beside it."""

import asyncio
import io

import msgspec
import pytest

from service.crypto.hash_kinds import digest_hash
from service.crypto.password_hashing import hash_password
from service.protocol.user import User, identify_user
from service.registry.editor import ChangeRefused, RegistryEditor
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.read import parse_seed
from service.registry.seed_file.report import MAX_REPORTED
from service.worker import Worker
from tests.conftest import MakeSettings
from tests.registry.imports import Fields, import_file, import_users, make_file, make_import, make_user
from tests.registry.seeds import OTHER_HASH, PASSWORD_HASH
from tests.store.interruptions import is_broken_off
from tests.store.sessions import Sessions
from tests.support.clients_and_users import ALICE, BOB
from tests.support.events import events_of

NEWEST_HASH = hash_password("the newest password")


async def read_users(worker: Worker) -> list[User]:
    """Return all users without the revisions, which every write changes."""
    return [msgspec.structs.replace(user, revision="") for user in await worker.registry.users.list_of("main")]


FIRST = (make_user(ALICE.username, name="Alice"), make_user(BOB.username), *(make_user(f"user{n}") for n in range(3)))
SECOND = (
    make_user(ALICE.username, password_hash=OTHER_HASH, name="Alice"),
    make_user("zoe"),
    {"username": BOB.username, "name": "Bob"},
    make_user("user0"),
    make_user("user1", disabled=True),
)


@pytest.mark.clause("decided-user-import")
async def test_repetition_completes_an_import_interrupted_at_any_call(
    sessions: Sessions, make_settings: MakeSettings
) -> None:
    """A session that began after the change of its user is not ended a second time."""
    worker, calls, is_broken, repeated = sessions.worker, 0, True, 0
    while is_broken:
        sessions.store.flushall()
        await import_users(worker, *FIRST)
        alice, bob = await sessions.start(ALICE), await sessions.start(BOB)
        is_broken = await is_broken_off(
            make_settings(), calls, lambda connection: import_file(make_import(connection, make_file(*SECOND)))
        )
        await worker.pending_revocations.run_all()
        is_changed = (await sessions.find_user()).password_hash == OTHER_HASH
        later = await sessions.start(ALICE)
        await import_users(worker, *SECOND)

        assert sessions.live(later) == [is_changed], calls
        assert (sessions.live(alice), sessions.live(bob)) == ([False], [True]), calls
        assert not await worker.registry.has_pending(), calls
        names = {user.username: (user.name, user.disabled) for user in await read_users(worker)}
        assert names[ALICE.username] == ("Alice", False), calls
        assert names[BOB.username] == ("Bob", False), calls
        assert (names["user1"], names["zoe"]) == (("", True), ("", False)), calls
        assert await import_users(worker, *SECOND) == {"added": 0, "updated": 0, "unchanged": 5, "users_logged_out": 0}
        repeated += is_changed
        calls += 1

    assert 1 < repeated < calls


@pytest.mark.clause("decided-user-import")
async def test_console_changes_beside_an_import_are_not_lost(worker: Worker) -> None:
    """The import changes names, the console roles, and logins replace hashes, of the same users at the same time."""
    usernames = [f"user{n}@example.com" for n in range(10)]
    await import_users(worker, *map(make_user, usernames))
    editor = RegistryEditor(worker.registry, worker.pending_revocations, {"actor": "root", "reason": "cli"})
    weak = {user.username: user for user in await worker.registry.users.list_of("main")}

    async def add_role(username: str) -> None:
        identity = identify_user("main", username)
        await editor.change_user(identity, lambda user: msgspec.structs.replace(user, roles=("enduser", "partner")))

    async def replace_hash(username: str) -> None:
        await worker.registry.users.replace_password_hash(weak[username], OTHER_HASH, digest_hash(PASSWORD_HASH))

    lines = [{"username": username, "name": f"Name of {username}"} for username in usernames]
    await asyncio.gather(
        import_users(worker, *lines), *map(add_role, usernames), *map(replace_hash, reversed(usernames))
    )

    for user in await read_users(worker):
        assert (user.name, user.roles) == (f"Name of {user.username}", ("enduser", "partner"))
        assert (user.password_hash, user.upgraded_from) in (
            (OTHER_HASH, digest_hash(PASSWORD_HASH)),
            (PASSWORD_HASH, None),
        )


@pytest.mark.clause("decided-user-import")
@pytest.mark.parametrize(
    ("fields", "ended"),
    [
        ({"password_hash": OTHER_HASH}, 1),
        ({"password": "other and long"}, 1),
        ({"roles": ["partner"]}, 1),
        ({"disabled": True}, 1),
        ({"password": "password"}, 0),
        ({"name": "Alice", "roles": ["enduser", "partner"], "disabled": False}, 0),
    ],
    ids=("hash", "password", "role", "disabled", "same password", "name and new role"),
)
async def test_imported_change_ends_sessions_as_at_the_console(
    sessions: Sessions, fields: Fields, ended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.registry.seed_file.check.find_password_mistake", lambda *_: None)
    await import_users(sessions.worker, make_user(ALICE.username))
    session = await sessions.start(ALICE)

    counts = await import_users(sessions.worker, {"username": ALICE.username.upper()} | fields)

    assert counts["users_logged_out"] == ended
    assert sessions.live(session) == [not ended]
    assert (await sessions.find_user()).roles == tuple(fields.get("roles", ["enduser"]))


@pytest.mark.clause("decided-user-import")
@pytest.mark.parametrize("upgraded_from", [digest_hash(PASSWORD_HASH), None], ids=("renewed", "changed"))
async def test_repeated_line_keeps_a_renewed_hash_and_a_new_password(
    sessions: Sessions, upgraded_from: str | None
) -> None:
    worker = sessions.worker
    editor = RegistryEditor(worker.registry, worker.pending_revocations, {"actor": "root", "reason": "cli"})
    await import_users(worker, make_user(ALICE.username))
    fields = {"password_hash": OTHER_HASH, "upgraded_from": upgraded_from}
    await editor.change_user(
        (await sessions.find_user()).identity, lambda user: msgspec.structs.replace(user, **fields)
    )
    session = await sessions.start(ALICE)

    assert (await import_users(worker, make_user(ALICE.username)))["unchanged"] == 1
    assert (await import_users(worker, make_user(ALICE.username, password_hash=OTHER_HASH)))["unchanged"] == 1
    assert (await import_users(worker, make_user(ALICE.username)))["unchanged"] == 1
    assert ((await sessions.find_user()).password_hash, sessions.live(session)) == (OTHER_HASH, [True])
    assert (await import_users(worker, make_user(ALICE.username, password_hash=NEWEST_HASH)))["users_logged_out"] == 1
    assert (await sessions.find_user()).password_hash == NEWEST_HASH


@pytest.mark.clause("decided-user-import")
async def test_seeds_neither_prune_nor_reset_imported_users(worker: Worker, seeding: Seeding) -> None:
    seeded = f"users: [{{username: {BOB.username}, password_hash: {PASSWORD_HASH!r}, name: Bob}}]".encode()
    await seeding.apply(parse_seed(seeded))
    await import_users(worker, make_user(ALICE.username), {"username": BOB.username, "name": "Robert"})

    await seeding.apply(parse_seed(seeded), prune=True)
    assert [user.name for user in await read_users(worker)] == ["", "Robert"]
    await seeding.apply(parse_seed(seeded), force=True)
    assert [user.name for user in await read_users(worker)] == ["", "Bob"]
    await seeding.apply(parse_seed(b"users:"), prune=True)
    assert [user.username for user in await read_users(worker)] == [ALICE.username]


@pytest.mark.clause("decided-user-import")
async def test_repeated_line_keeps_the_password_of_a_forced_seed(worker: Worker, seeding: Seeding) -> None:
    """A forced seed must not forget which hash was imported: the next import would restore the old password."""
    line = make_user(ALICE.username)
    exported = f"users: [{{username: {ALICE.username}, password_hash: {OTHER_HASH!r}, roles: [enduser]}}]".encode()
    await import_users(worker, line)

    await seeding.apply(parse_seed(exported), force=True)

    assert (await import_users(worker, line))["unchanged"] == 1
    assert [user.password_hash for user in await read_users(worker)] == [OTHER_HASH]


async def test_large_import_records_few_events_and_the_totals(worker: Worker, json_logs: io.StringIO) -> None:
    lines = [make_user(f"user{n}") for n in range(MAX_REPORTED + 5)]
    await import_file(make_import(worker.redis, make_file(*lines), 10))
    created = events_of(json_logs)
    await import_file(make_import(worker.redis, make_file(*({**line, "disabled": True} for line in lines)), 10))
    disabled = events_of(json_logs)

    assert [name for name, _ in created] == ["user_created"] * MAX_REPORTED + ["users_imported"]
    assert created[0][1] == {"username": "user0", "realm": "main", "actor": "root", "reason": "import"}
    assert created[-1][1] == {"added": MAX_REPORTED + 5, "updated": 0, "actor": "root"}
    assert [name for name, _ in disabled].count("user_disabled") == len(lines)


async def test_file_that_changes_after_the_check_is_refused(worker: Worker) -> None:
    file = make_file(make_user("alice"), make_user("bob"))
    users = make_import(worker.redis, file, 1)
    await users.check(lambda _: None)
    file.truncate(len(file.getvalue()) - 20)

    with pytest.raises(ChangeRefused, match="after 1 users"):
        await users.apply(lambda _done, _total: None, actor="root")
