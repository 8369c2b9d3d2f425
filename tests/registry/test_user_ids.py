"""The ids of users, as seeds, imports, the console and deletions handle them: an id never leads to two users."""

from typing import Any

import msgspec
import pytest
import redis

from service.protocol.user import User, identify_user
from service.registry.editor import ChangeRefused, RegistryEditor, Taken
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.entries import BadSeed, Seed
from service.registry.seed_file.read import parse_seed
from service.store.client import StoreClient
from service.store.keys import id_key
from service.worker import Worker
from tests.conftest import MakeSettings
from tests.registry.imports import Fields, import_users, make_file, make_import, make_user
from tests.registry.seeds import PASSWORD_HASH, make_seeding
from tests.store.interruptions import is_broken_off
from tests.store.sessions import Sessions
from tests.support.clients_and_users import BOB

pytestmark = pytest.mark.clause("decided-user-ids")

KIM, LEE = identify_user("main", "kim"), identify_user("main", "lee")


def make_seed(*users: dict[str, str]) -> Seed:
    return parse_seed(msgspec.json.encode({"users": [{"password_hash": PASSWORD_HASH} | user for user in users]}))


async def list_ids(worker: Worker) -> dict[str, str]:
    """Return the id of each user. Each id leads to its user and nobody else."""
    users = await worker.registry.users.list_of("main")
    for user in users:
        assert [holder.digest for holder in await worker.registry.ids.find(user.id)] == [user.identity.digest]
    return {user.username: user.id for user in users}


async def refuse_seed(seeding: Seeding, seed: Seed, *mistakes: str, force: bool = False) -> None:
    """The start, `admin seed` and its dry run refuse the file alike."""
    for run in (seeding.apply, seeding.compare):
        with pytest.raises(BadSeed) as refused:
            await run(seed, force=force)
        assert refused.value.mistakes == mistakes


class TestSeeds:
    async def test_an_id_is_given_or_follows_from_the_name(
        self, worker: Worker, seeding: Seeding, store: redis.Redis
    ) -> None:
        seed = make_seed({"username": "kim"}, {"username": "lee", "id": "customer-1"})
        ids = []
        for _ in range(2):
            store.flushall()
            await seeding.apply(seed)
            ids.append(await list_ids(worker))
        assert ids == [{"kim": KIM.digest, "lee": "customer-1"}] * 2

    async def test_an_entry_without_id_keeps_the_id_of_the_record(self, worker: Worker, seeding: Seeding) -> None:
        await seeding.apply(make_seed({"username": "kim", "id": "k"}))
        for force in (False, True):
            await seeding.apply(make_seed({"username": "kim", "name": "Kim"}), force=force)
            assert await list_ids(worker) == {"kim": "k"}

    async def test_a_changed_or_taken_id_is_refused_with_its_place(self, worker: Worker, seeding: Seeding) -> None:
        await seeding.apply(make_seed({"username": "kim", "id": "k"}))
        changed = make_seed({"username": "lee", "id": "k"}, {"username": "kim", "id": "other"})
        for force in (False, True):
            await refuse_seed(
                seeding,
                changed,
                "users[1].id: differs from the user's id, which cannot be changed",
                "users[0].id: already belongs to user kim",
                force=force,
            )
        assert await list_ids(worker) == {"kim": "k"}

    async def test_a_deleted_entry_is_passed_over_unless_forced(self, worker: Worker, seeding: Seeding) -> None:
        """Its id may be another user's by now."""
        both = make_seed({"username": "kim", "id": "k"}, {"username": "lee"})
        await seeding.apply(both)
        editor = make_editor(worker.redis)
        await editor.delete_user(KIM)
        await editor.create_user(User(realm="main", username="ann", id="k"))

        edited = make_seed({"username": "kim", "id": "k", "name": "Kim"}, {"username": "lee", "name": "Lee"})
        assert (await seeding.apply(edited)).changes == 1
        await refuse_seed(seeding, edited, "users[0].id: already belongs to user ann", force=True)
        await editor.delete_user(identify_user("main", "ann"))
        await seeding.apply(edited, force=True)
        assert await list_ids(worker) == {"kim": "k", "lee": LEE.digest}

    @pytest.mark.parametrize("order", [1, -1])
    async def test_a_derived_id_that_is_taken_becomes_a_random_one(
        self, worker: Worker, seeding: Seeding, order: int
    ) -> None:
        """After a rename and an export, one entry has the id that follows from the name of another."""
        entries = [{"username": "kim"}, {"username": "kim@example.com", "id": KIM.digest}][::order]
        outcome = await seeding.apply(make_seed(*entries))

        ids = await list_ids(worker)
        assert ids["kim@example.com"] == KIM.digest
        assert len(ids["kim"]) == 22
        assert ids["kim"] != KIM.digest
        assert [warning for warning in outcome.warnings if "random" in warning] == [
            "kim: the id derived from the user name belongs to another user, so a random id was chosen"
        ]

    @pytest.mark.parametrize(
        ("fields", "mistake"),
        [
            ({"id": "~k"}, "users[0].id: expected 1 to 128 printable ASCII characters without spaces and %"),
            ({"id": "a b"}, "users[0].id: expected 1 to 128"),
            ({"id": "x" * 129}, "users[0].id: expected 1 to 128"),
            ({"id": "k", "realm": "cep"}, "users[0].id: expected none: only users of realm main have an id"),
        ],
        ids=str,
    )
    def test_ids_without_the_form_or_of_external_realms_are_refused(self, fields: dict[str, str], mistake: str) -> None:
        tree: dict[str, Any] = {"realms": {"cep": {"client_id": "us", "issuer": "https://login.example.org"}}}
        tree["users"] = [{"username": "kim", "password_hash": PASSWORD_HASH} | fields]
        with pytest.raises(BadSeed) as refused:
            parse_seed(msgspec.json.encode(tree))
        assert [each for each in refused.value.mistakes if each.startswith(mistake)]

    async def test_the_id_of_a_pruned_user_is_free(self, worker: Worker, seeding: Seeding) -> None:
        seeding.shards = [KIM.shard]
        await seeding.apply(make_seed({"username": "kim", "id": "k"}))
        await seeding.apply(make_seed({"username": "lee"}), prune=True)
        await seeding.apply(make_seed({"username": "lee"}, {"username": "ann", "id": "k"}))
        assert await list_ids(worker) == {"ann": "k", "lee": LEE.digest}


class TestImports:
    async def test_an_id_is_given_or_random(self, worker: Worker) -> None:
        lines = make_user("kim", id="k"), make_user("lee")
        await import_users(worker, *lines)
        ids = await list_ids(worker)
        assert ids["kim"] == "k"
        assert len(ids["lee"]) == 22
        assert ids["lee"] != LEE.digest

        assert (await import_users(worker, *lines, make_user("ann", id="a")))["unchanged"] == 2
        assert await list_ids(worker) == ids | {"ann": "a"}

    @pytest.mark.parametrize(
        ("lines", "mistake"),
        [
            ([make_user("ann", id="a"), make_user("lee", id="a")], "line 2 (lee): id: is a duplicate of line 1"),
            ([make_user("ann", id="k")], "line 1 (ann): id: already belongs to user kim"),
            ([make_user("kim", id="other")], "line 1 (kim): id: differs from the user's id, which cannot be changed"),
            ([make_user("ann", id="")], "line 1 (ann): id: expected an id, or no such field"),
            (
                [make_user("ann", id="~a")],
                "line 1 (ann): id: expected 1 to 128 printable ASCII characters without spaces",
            ),
        ],
        ids=("doubled", "taken", "changed", "empty", "malformed"),
    )
    async def test_a_wrong_id_is_told_with_its_line(self, worker: Worker, lines: list[Fields], mistake: str) -> None:
        await import_users(worker, make_user("kim", id="k"))
        with pytest.raises(BadSeed) as refused:
            await import_users(worker, *lines)
        assert [each for each in refused.value.mistakes if each.startswith(mistake)]
        assert await list_ids(worker) == {"kim": "k"}

    async def test_an_import_with_ids_stops_at_a_renamed_user(self, worker: Worker) -> None:
        """An import has no memory: without ids it adds the former name again."""
        await import_users(worker, make_user("kim", id="k"))
        await make_editor(worker.redis).put_user(KIM, lambda user: renamed(user, "lee"))

        with pytest.raises(BadSeed, match=r"line 1 \(kim\): id: already belongs to user lee"):
            await import_users(worker, make_user("kim", id="k"))
        await import_users(worker, make_user("kim"))
        assert (await list_ids(worker)).keys() == {"kim", "lee"}

    async def test_an_id_that_is_taken_after_the_check_stops_the_import(self, worker: Worker) -> None:
        users = make_import(worker.redis, make_file(make_user("kim", id="k")))
        await users.check(lambda _: None)
        await make_editor(worker.redis).create_user(User(realm="main", username="lee", id="k"))
        with pytest.raises(ChangeRefused, match="other users were given these ids meanwhile: k"):
            await users.apply(lambda _done, _total: None, actor="root")
        assert await list_ids(worker) == {"lee": "k"}


def make_editor(connection: StoreClient) -> RegistryEditor:
    seeding = make_seeding(connection)
    return RegistryEditor(seeding._registry, seeding._pending_revocations, {"actor": "root"})


def renamed(user: User | None, username: str) -> User:
    assert user is not None
    return msgspec.structs.replace(user, username=username)


async def test_a_claim_without_its_record_is_free(worker: Worker, make_settings: MakeSettings) -> None:
    """The creation is broken off at every call. The next creator takes the id, unless the first one has it."""
    kim, lee = (User(realm="main", username=name, id="k") for name in ("kim", "lee"))
    calls, is_broken, taken = 0, True, 0
    while is_broken:
        is_broken = await is_broken_off(make_settings(), calls, lambda redis: make_editor(redis).create_user(kim))
        if await worker.registry.users.find(KIM) is None:
            await make_editor(worker.redis).create_user(lee)
            assert await list_ids(worker) == {"lee": "k"}
            await make_editor(worker.redis).delete_user(LEE)
        else:
            with pytest.raises(Taken):
                await make_editor(worker.redis).create_user(lee)
            assert await list_ids(worker) == {"kim": "k"}
            await make_editor(worker.redis).delete_user(KIM)
            taken += 1
        calls += 1
    assert 0 < taken < calls - 1


@pytest.mark.usefixtures("registry")
async def test_a_deletion_removes_the_id_last(sessions: Sessions, make_settings: MakeSettings) -> None:
    """It is broken off at every call. While something of the user is alive, the id leads to it."""
    worker, bob, calls, is_broken, states = sessions.worker, await sessions.find_user(BOB), 0, True, set[bool]()
    while is_broken:
        await worker.registry.users.put(bob)
        await worker.registry.ids.put(bob.id, bob.identity)
        family = await sessions.start(BOB)
        is_broken = await is_broken_off(
            make_settings(), calls, lambda redis: make_editor(redis).delete_user(bob.identity)
        )
        is_alive = any(sessions.live(family)) or await worker.registry.users.find(bob.identity) is not None
        has_key = bool(sessions.store.exists(id_key(bob.id)))
        assert has_key or not is_alive, calls
        states.add(has_key and not is_alive)
        await worker.pending_revocations.run_all()
        calls += 1
    assert not sessions.store.exists(id_key(bob.id))
    assert states == {True, False}


async def test_a_left_id_leads_to_nobody_else(worker: Worker) -> None:
    """A deletion was interrupted before it removed the id, and the name was given to another person."""
    await worker.registry.ids.put("k", KIM)
    assert [user.digest for user in await worker.registry.ids.find("k")] == [KIM.digest]
    await make_editor(worker.redis).create_user(User(realm="main", username="kim", id="another"))
    assert await worker.registry.ids.find("k") == []
