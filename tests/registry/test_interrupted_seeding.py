"""A load that is interrupted at any call is finished or taken back by the next start."""

from dataclasses import dataclass

import msgspec
import pytest

from service.protocol.user import identify_user
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.entries import Seed
from service.registry.seed_file.read import parse_seed
from service.worker import Worker
from tests.conftest import MakeSettings
from tests.registry.seeds import OTHER_HASH, SeedText, make_seeding
from tests.store.interruptions import is_broken_off
from tests.store.sessions import Sessions
from tests.support.clients_and_users import ALICE, BOB, UserCredentials
from tests.support.origins import is_origin

ZOE = UserCredentials("zoe", "", realm="cep")
ISSUER = 'issuer: "https://login.example.org"'
EDITS = {
    "scope": "realm:main role:organisation",
    "grants": "password, refresh_token",
    "redirect_uri": "https://phone.example/y",
    "password_hash": OTHER_HASH,
    "roles": "organisation",
    "name": "Another",
}


def make_seed(default_roles: str, **changes: str) -> Seed:
    text = SeedText().but(**changes).text.replace(ISSUER, f"{ISSUER}, default_roles: [{default_roles}]")
    return parse_seed(f"{text}  - {{username: listed, realm: cep, roles: [enduser]}}\n".encode())


FIRST = make_seed("enduser, partner")
SHARDS = sorted({identify_user(entry.realm, entry.username).shard for entry in FIRST.users})
"""The shards that have users. Pruning looks for users in every shard, which takes most of the time."""


@dataclass(frozen=True)
class Load:
    """A change of the first seed. It ends all sessions but Bob's at the web shop."""

    seed: Seed
    prune: bool = False

    async def apply(self, seeding: Seeding) -> None:
        seeding.shards = SHARDS
        await seeding.apply(self.seed, prune=self.prune)

    async def break_off(self, make_settings: MakeSettings, calls: int) -> bool:
        """Load over a connection that fails after so many calls. Returns True if it failed."""
        return await is_broken_off(make_settings(), calls, lambda connection: self.apply(make_seeding(connection)))


LOADS = {
    "edited": Load(make_seed("enduser", **EDITS)),
    "pruned": Load(msgspec.structs.replace(FIRST, realms={}, clients=FIRST.clients[1:], users=FIRST.users[1:2]), True),
}
EVERY_LOAD = pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
"""Each load is interrupted at every call, until one call is enough to finish it."""


async def begin(sessions: Sessions, seeding: Seeding) -> None:
    """Load the first seed into an empty store, and change another field at the console."""
    sessions.store.flushall()
    await seeding.apply(FIRST)
    bob = await sessions.worker.registry.users.find(identify_user("main", BOB.username))
    assert bob is not None
    await sessions.worker.registry.users.put(msgspec.structs.replace(bob, name="By the console"))


async def registry_of(worker: Worker) -> list[object]:
    """Return the registry without the revisions and sealed secrets, which every write changes."""
    users = [user for realm in ("main", "cep") for user in await worker.registry.users.list_of(realm)]
    realms = await worker.registry.realms.list_all()
    return [
        [msgspec.structs.replace(user, revision="") for user in users],
        await worker.registry.clients.list_all(),
        {name: msgspec.structs.replace(realm, sealed_secret="") for name, realm in realms.items()},
        await is_origin(worker, "https://phone.example"),
        (await worker.registry.seeds.list_all()).keys() - {"file"},
    ]


@EVERY_LOAD
@pytest.mark.clause("decided-seed-interrupted", "decided-seed-ends-sessions", "decided-seed-prune")
@pytest.mark.clause("decided-seed-keeps-console-changes", "decided-default-roles-narrowed")
async def test_the_next_start_finishes_an_interrupted_load(
    sessions: Sessions, seeding: Seeding, make_settings: MakeSettings, load: Load
) -> None:
    await begin(sessions, seeding)
    await load.apply(seeding)
    expected = await registry_of(sessions.worker)
    calls, is_broken = 0, True
    while is_broken:
        await begin(sessions, seeding)
        kept, code = await sessions.start(BOB, "web-shop"), await sessions.issue_code(BOB)
        ended = [
            await sessions.start(ALICE, "web-shop"),
            await sessions.start(ZOE, "web-shop", scope="realm:cep role:partner"),
        ]
        is_broken = await load.break_off(make_settings, calls)
        await load.apply(seeding)

        assert await registry_of(sessions.worker) == expected, calls
        assert not any(sessions.record(each) or any(sessions.live(each)) for each in ended), calls
        assert not sessions.code_is_there(code), calls
        assert sessions.live(kept) == [True], calls
        assert not await sessions.worker.registry.has_pending(), calls
        calls += 1

    assert calls > 15


@pytest.mark.clause("decided-seed-interrupted")
async def test_the_former_file_undoes_an_interrupted_load(
    sessions: Sessions, seeding: Seeding, make_settings: MakeSettings
) -> None:
    await begin(sessions, seeding)
    before = await registry_of(sessions.worker)
    calls = 0
    while await registry_of(sessions.worker) == before:
        assert await LOADS["edited"].break_off(make_settings, calls)
        calls += 1

    await seeding.apply(FIRST)

    assert await registry_of(sessions.worker) == before


@pytest.mark.clause("decided-seed-interrupted", "decided-seed-ends-sessions", "decided-user-change-ends-tokens")
async def test_sessions_of_changed_entries_end_under_any_next_file(
    sessions: Sessions, seeding: Seeding, make_settings: MakeSettings
) -> None:
    """A client that lost the right to refresh lost what its next record does not show."""
    registry, load = sessions.worker.registry, Load(make_seed("enduser", roles="enduser", grants="password"))
    calls, cut_short, is_broken = 0, 0, True
    while is_broken:
        await begin(sessions, seeding)
        before = await sessions.find_user()
        alice, bob = await sessions.start(ALICE, "web-shop"), await sessions.start(BOB)
        is_broken = await load.break_off(make_settings, calls)
        client = await registry.clients.find("phone-app")
        is_alice_changed = (await sessions.find_user()).revision != before.revision
        is_phone_narrowed = client is not None and "refresh_token" not in client.grant_types
        cut_short += is_alice_changed and any(sessions.live(alice))
        cut_short += is_phone_narrowed and any(sessions.live(bob))
        await seeding.apply(parse_seed(b"{}"))

        assert not (is_alice_changed and any(sessions.live(alice))), calls
        assert is_phone_narrowed is not any(sessions.live(bob)), calls
        assert not await registry.has_pending(), calls
        calls += 1

    assert cut_short > 1
