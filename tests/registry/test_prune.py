"""Pruning removes the entries of an earlier seed that this one lacks, with their sessions, and nothing else."""

from collections import Counter

import pytest

from service.protocol.client import Client
from service.protocol.provider import IdentityProvider
from service.protocol.user import User, identify_user
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.read import parse_seed
from service.worker import Worker
from tests.registry.seeds import PASSWORD_HASH, SECRET_HASH, SeedText
from tests.store.sessions import Session, Sessions
from tests.support.clients_and_users import ALICE, BOB, UserCredentials
from tests.support.origins import is_origin

LISTED, ZOE, CAROL = (
    UserCredentials("listed", "", realm="cep"),
    UserCredentials("zoe", "", realm="cep"),
    UserCredentials("carol", "", realm="cep"),
)
CONSOLE = UserCredentials("made-at-the-console@example.com", "")
FIRST = parse_seed(f"{SeedText().text}  - {{username: listed, realm: cep, roles: [enduser]}}\n".encode())
LEFT = parse_seed(
    f"""
clients:
  - {{client_id: web-shop, client_secret_hash: "{SECRET_HASH}", grant_types: [password, refresh_token],
     scope: "realm:main role:enduser"}}
users:
  - {{username: bob@example.com, password_hash: "{PASSWORD_HASH}", roles: [enduser]}}
""".encode()
)
"""The first seed without the realm and its user, phone-app, and Alice."""

KEPT = {"bob, shop", "console, shop"}


async def make_at_the_console(worker: Worker) -> None:
    client = Client(client_id="made-at-the-console", redirect_uris=("https://console.example/",))
    await worker.registry.clients.put(client)
    names = [(CONSOLE.realm, CONSOLE.username), (CAROL.realm, CAROL.username)]
    for realm, name in names:
        await worker.registry.users.put(User(realm=realm, username=name, roles=("enduser",)))


async def start_sessions(sessions: Sessions) -> dict[str, Session]:
    cep = "realm:cep role:enduser"
    return {
        "alice, shop": await sessions.start(ALICE, "web-shop"),
        "bob, shop": await sessions.start(BOB, "web-shop"),
        "bob, phone": await sessions.start(BOB),
        "listed, shop": await sessions.start(LISTED, "web-shop", scope=cep),
        "zoe, shop": await sessions.start(ZOE, "web-shop", scope=cep),
        "carol of the console, shop": await sessions.start(CAROL, "web-shop", scope=cep),
        "console, shop": await sessions.start(CONSOLE, "web-shop"),
    }


def find_live(sessions: Sessions, by_name: dict[str, Session]) -> set[str]:
    ended = {name for name, session in by_name.items() if not sessions.record(session)}
    assert ended == {name for name, session in by_name.items() if sessions.live(session) == [False]}
    return set(by_name) - ended


@pytest.mark.clause("decided-seed-prune")
async def test_pruning_removes_only_seeded_records(sessions: Sessions, seeding: Seeding) -> None:
    registry = sessions.worker.registry
    await seeding.apply(FIRST)
    await make_at_the_console(sessions.worker)
    by_name = await start_sessions(sessions)
    outcome = await seeding.apply(LEFT, prune=True)

    assert outcome.counts["realms"] == Counter(removed=1)
    assert outcome.counts["clients"] == Counter(removed=1, unchanged=1)
    assert outcome.counts["users"] == Counter(removed=2, unchanged=1)
    assert find_live(sessions, by_name) == KEPT
    assert await registry.realms.find("cep") is None
    assert await registry.clients.find("phone-app") is None
    assert not await is_origin(sessions.worker, "https://phone.example")
    assert await registry.users.find(identify_user("main", ALICE.username)) is None
    assert await registry.clients.find("made-at-the-console")
    assert await is_origin(sessions.worker, "https://console.example")
    assert not sessions.store.keys("owed_*")

    await registry.realms.put("cep", IdentityProvider(client_id="console", issuer="https://console.example"))
    assert (await seeding.apply(LEFT, prune=True, force=True)).changes == 0
    assert await registry.realms.find("cep")


@pytest.mark.clause("decided-seed-prune")
async def test_without_being_asked_nothing_is_removed(sessions: Sessions, seeding: Seeding) -> None:
    await seeding.apply(FIRST)
    await make_at_the_console(sessions.worker)
    by_name = await start_sessions(sessions)
    outcome = await seeding.apply(LEFT)

    assert outcome.changes == 0
    assert find_live(sessions, by_name) == set(by_name)


@pytest.mark.clause("decided-seed-prune")
async def test_pruned_entry_can_return_with_a_file(worker: Worker, seeding: Seeding) -> None:
    await seeding.apply(FIRST)
    await seeding.apply(LEFT)
    assert (await seeding.apply(LEFT, prune=True)).changes == 4
    outcome = await seeding.apply(FIRST)

    assert [counts["added"] for counts in outcome.counts.values()] == [1, 1, 2]
