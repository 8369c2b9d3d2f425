"""A rename that is interrupted at any call is finished, or undone where the new name has become another user's."""

from functools import partial

import httpx2
import msgspec
import pytest

from service.protocol.user import User, UserIdentity, identify_user
from service.redis_client.deadline import StoreUnavailable
from service.registry.editor import ChangeRefused, RegistryEditor, Taken
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.read import load_seed
from service.store.client import StoreClient
from service.store.keys import id_key, mark_key, user_seed_key
from service.worker import Worker
from tests.conftest import SEED, MakeSettings
from tests.registry.seeds import make_seeding
from tests.store.interruptions import is_broken_off
from tests.store.sessions import Sessions
from tests.support.clients_and_users import ALICE, BOB, PHONE_APP, UserCredentials, assert_error
from tests.support.logins import login_of

NAME = "robert@example.com"
OLD, NEW = identify_user("main", BOB.username), identify_user("main", NAME)

pytestmark = [pytest.mark.usefixtures("registry"), pytest.mark.clause("decided-user-renames")]


def make_editor(connection: StoreClient) -> RegistryEditor:
    seeding = make_seeding(connection)
    return RegistryEditor(seeding._registry, seeding._pending_revocations, {"actor": "back-office"})


async def rename(connection: StoreClient, identity: UserIdentity = OLD, username: str = NAME, **fields: object) -> None:
    def change(user: User | None) -> User:
        if user is None:
            raise ChangeRefused("there is no such user")
        return msgspec.structs.replace(user, username=username, **fields)

    await make_editor(connection).put_user(identity, change)


class Renames:
    """Bob, whose rename is broken off after one call more each time. `state` tells which record is there then."""

    def __init__(self, sessions: Sessions, bob: User, make_settings: MakeSettings) -> None:
        self.sessions, self.worker, self.bob = sessions, sessions.worker, bob
        self.make_settings = make_settings
        self.calls = 0
        self.states: list[str] = []

    async def break_off(self) -> bool:
        """Begin anew with a session of Bob. Returns True if the rename failed."""
        for user in (OLD, NEW):
            await self.worker.registry.users.delete(user)
        await self.worker.registry.users.put(self.bob)
        await self.worker.registry.ids.put(self.bob.id, OLD)
        self.family = await self.sessions.start(BOB)
        is_broken = await is_broken_off(self.make_settings(), self.calls, rename)
        self.calls += 1
        old, new = await self.find(OLD), await self.find(NEW)
        names = ("marked" if old.renamed_to else "old") if old else "", "new" if new else ""
        self.states.append(" ".join(filter(None, names)))
        return is_broken

    async def find(self, identity: UserIdentity) -> User | None:
        return await self.worker.registry.users.find(identity)

    async def assert_renamed(self, **fields: object) -> None:
        user = await self.find(NEW)
        assert user == msgspec.structs.replace(
            self.bob, username=NAME, revision=user.revision if user else "", **fields
        )
        assert await self.find(OLD) is None
        await self._assert_settled(NEW)

    async def assert_not_renamed(self) -> None:
        user = await self.find(OLD)
        assert user is not None
        assert user == msgspec.structs.replace(self.bob, revision=user.revision)
        await self._assert_settled(OLD)

    async def _assert_settled(self, holder: UserIdentity) -> None:
        assert self.sessions.store.get(id_key(self.bob.id)) == holder.digest, self.states
        assert not await self.worker.registry.has_pending()
        if holder is NEW:
            assert self.sessions.live(self.family) == [False]
            assert not self.sessions.record(self.family)


@pytest.fixture
async def renames(sessions: Sessions, make_settings: MakeSettings) -> Renames:
    return Renames(sessions, await sessions.find_user(BOB), make_settings)


async def test_a_worker_finishes_an_interrupted_rename(renames: Renames) -> None:
    while await renames.break_off():
        await renames.worker.pending_revocations.run_all()
        await (renames.assert_not_renamed() if renames.states[-1] == "old" else renames.assert_renamed())
    await renames.assert_renamed()
    assert set(renames.states) == {"old", "marked", "marked new", "new"}


async def test_a_repetition_finishes_an_interrupted_rename(renames: Renames) -> None:
    """It may change more than the first attempt did, which then holds under the new name."""
    while await renames.break_off():
        if renames.states[-1] == "new":
            with pytest.raises(ChangeRefused):
                await rename(renames.worker.redis)
            await renames.assert_renamed()
        else:
            await rename(renames.worker.redis, roles=())
            await renames.assert_renamed(roles=())


async def test_a_new_user_does_not_get_the_name_of_a_rename(renames: Renames) -> None:
    while await renames.break_off():
        other = User(realm="main", username=NAME, id="another")
        create = partial(make_editor(renames.worker.redis).create_user, other)
        if renames.states[-1] == "old":
            continue
        with pytest.raises(ChangeRefused):
            await create()
        await renames.assert_renamed()


async def test_a_rename_is_undone_if_the_name_was_given_away(renames: Renames) -> None:
    """A failover can lose what the rename wrote last, and bring back what another process wrote before."""
    undone = 0
    while await renames.break_off():
        if "new" in renames.states[-1]:
            continue
        await renames.worker.registry.users.put(User(realm="main", username=NAME, id="another"))
        await renames.worker.registry.ids.put("another", NEW)
        await renames.worker.pending_revocations.run_all()
        undone += renames.states[-1] == "marked"
        await renames.assert_not_renamed()
        with pytest.raises(Taken):
            await rename(renames.worker.redis)
        await renames.assert_not_renamed()
        assert await renames.worker.registry.ids.find("another") == [
            msgspec.structs.replace(NEW, realm="", username="")
        ]
        await renames.worker.registry.ids.release(["another"])
    assert undone > 1


async def test_an_id_covers_both_names_during_a_rename(renames: Renames) -> None:
    """Whatever is alive at an interruption is under a name that the id leads to."""
    covered = set[int]()
    while await renames.break_off():
        digests = {user.digest for user in await renames.worker.registry.ids.find(renames.bob.id)}
        assert OLD.digest in digests or not any(renames.sessions.live(renames.family)), renames.states
        assert NEW.digest in digests or await renames.find(NEW) is None, renames.states
        covered.add(len(digests))
        await renames.worker.pending_revocations.run_all()
    assert covered == {1, 2}


@pytest.mark.parametrize("what", ["deleted", "renamed back", "renamed again"])
async def test_an_interrupted_rename_undoes_no_later_change(renames: Renames, what: str) -> None:
    """Finishing the rename must not bring a deleted user back, nor lead to the former name."""
    changed = 0
    while await renames.break_off():
        if "new" not in renames.states[-1]:
            continue
        worker, changed = renames.worker, changed + 1
        if what == "deleted":
            await make_editor(worker.redis).delete_user(NEW)
        else:
            await rename(worker.redis, NEW, BOB.username if what == "renamed back" else "bobby@example.com")
        await worker.pending_revocations.run_all()

        users = {user.username for user in await worker.registry.users.list_of("main") if user.id == renames.bob.id}
        assert users == {"deleted": set(), "renamed back": {BOB.username}}.get(what, {"bobby@example.com"})
        assert len(await worker.registry.ids.find(renames.bob.id)) == len(users)
        assert renames.sessions.live(renames.family) == [False]
        await worker.registry.users.delete(identify_user("main", "bobby@example.com"))
    assert changed > 2


async def test_a_rename_leaves_nothing_under_the_former_name(renames: Renames) -> None:
    """What stays is the mark, the memory of the seed, and keys that expire."""
    renames.calls = 1_000
    await renames.sessions.issue_code(BOB)
    assert not await renames.break_off()
    store = renames.sessions.store

    kept = {str(key) for key in store.scan_iter("*") if OLD.digest in str(key)}
    assert mark_key(OLD.shard, OLD.digest) in kept
    assert all(int(store.pttl(key)) > 0 for key in kept), kept
    assert not {key.partition(":")[0] for key in kept} & {"user", "index", "revoked", "family", "code", "browser"}
    assert store.hexists(user_seed_key(OLD.shard), OLD.digest)


async def test_the_seed_of_a_renamed_user_adds_nobody(renames: Renames, worker: Worker, seeding: Seeding) -> None:
    """The file is edited, so that it is applied again. A forced seed brings the former name back, as another user."""
    renames.calls = 1_000
    await renames.break_off()
    seed = load_seed(SEED, 8)
    seed = msgspec.structs.replace(seed, fingerprint=b"edited")

    await worker.seeding.apply(seed)
    assert await renames.find(OLD) is None
    await worker.seeding.apply(seed, force=True)
    back = await renames.find(OLD)
    assert back is not None
    assert back.id not in ("", renames.bob.id)


async def test_a_session_that_cannot_be_read_blocks_no_rename(renames: Renames, worker: Worker) -> None:
    """The session is of a newer version. It ends as soon as it can be read, and other users can be changed."""
    await renames.break_off()
    record = renames.sessions.record(renames.family) or ""
    renames.sessions.store.set(renames.family.key, "3\nlines")
    with pytest.raises(StoreUnavailable):
        await rename(worker.redis)
    assert await renames.find(OLD) is None

    await make_editor(worker.redis).change_user(
        identify_user("main", ALICE.username), lambda user: msgspec.structs.replace(user, name="Alice A.")
    )
    assert [each.digest for each in await worker.registry.list_pending_users()] == [OLD.digest]
    renames.sessions.store.set(renames.family.key, record)
    await worker.pending_revocations.run_all()
    await renames.assert_renamed()


async def test_a_login_checked_before_the_rename_starts_nothing(renames: Renames) -> None:
    await renames.break_off()
    login = login_of(renames.bob, begun_ms=renames.sessions.now_ms())
    await rename(renames.worker.redis)
    assert await renames.sessions.try_to_start(login) is None


async def test_a_user_who_is_being_renamed_cannot_log_in(renames: Renames, http: httpx2.AsyncClient) -> None:
    """A session that began under the former name would outlive the rename if it began after the revocation."""
    while renames.states[-1:] != ["marked"]:
        await renames.break_off()

    assert_error(await PHONE_APP.log_in(http, BOB), 400, "invalid_grant")
    await renames.worker.pending_revocations.run_all()
    assert (await PHONE_APP.log_in(http, UserCredentials(NAME, BOB.password))).status_code == 200
