"""A user whose records cannot be read stays pending, and keeps no revocation or change of anyone else waiting."""

from collections.abc import Callable

import msgspec
import pytest
import redis

from service.protocol.user import User, identify_user
from service.redis_client.deadline import StoreUnavailable
from service.registry.editor import RegistryEditor
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.read import parse_seed
from service.store.keys import mark_key, registry_key, user_key
from service.store.sessions.families import UserEnding
from service.worker import Worker
from tests.registry.seeds import SeedText
from tests.registry.test_default_roles import ENDUSER, LISTED, YVES, ZOE, make_seed
from tests.store.sessions import Session, Sessions
from tests.support.clients_and_users import ALICE, BOB, UserCredentials

pytestmark = pytest.mark.clause("decided-newer-record", "decided-unreadable-stays-pending")

BREAKS: dict[str, Callable[[redis.Redis, Session], object]] = {
    "a session of a newer version": lambda store, session: store.set(session.key, "3\nlines"),
    "a broken mark": lambda store, session: store.set(
        mark_key(session.identity.shard, session.identity.digest), "soon"
    ),
}


def disable(user: User) -> User:
    return msgspec.structs.replace(user, disabled=True)


def make_editor(worker: Worker) -> RegistryEditor:
    return RegistryEditor(worker.registry, worker.pending_revocations, {"actor": "somebody", "reason": "cli"})


@pytest.mark.parametrize("kind", BREAKS)
async def test_one_blocked_user_leaves_other_changes_free(
    sessions: Sessions, seeding: Seeding, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    await seeding.apply(SeedText().seed)
    alice, bob = await sessions.start(ALICE), await sessions.start(BOB)
    worker, editor = sessions.worker, make_editor(sessions.worker)
    BREAKS[kind](sessions.store, alice)

    with pytest.raises(StoreUnavailable):
        await editor.change_user(alice.identity, disable)
    await editor.change_user(bob.identity, disable)
    await seeding.apply(SeedText().but(name="Another").seed)
    for _ in range(3):
        await worker.pending_revocations.run_all()

    assert sessions.live(bob) == [False]
    assert await worker.registry.list_pending_users() == [UserEnding.of(alice.identity, "user_disabled")]
    assert len([line for line in caplog.messages if "are not revoked yet" in line]) == 2, "one by each process"

    sessions.store.delete(alice.key, mark_key(alice.identity.shard, alice.identity.digest))
    await worker.pending_revocations.run_all()
    assert not await worker.registry.has_pending()


async def test_malformed_pending_revocation_blocks_no_change(sessions: Sessions, seeding: Seeding) -> None:
    await seeding.apply(SeedText().seed)
    bob, members = await sessions.start(BOB), [b"x", b"\xff", b"0a3:subject:reason:more"]
    sessions.store.sadd(registry_key("pending_revocations"), *members)

    await make_editor(sessions.worker).change_user(bob.identity, disable)

    assert sessions.live(bob) == [False]
    assert sessions.store.scard(registry_key("pending_revocations")) == len(members)


@pytest.mark.parametrize("blocked", ["the record of a user", "a session"])
async def test_scan_goes_on_beside_an_unreadable_record(sessions: Sessions, seeding: Seeding, blocked: str) -> None:
    """The seed is in force, and the scan stays pending."""
    await seeding.apply(make_seed())
    people: list[UserCredentials] = [ZOE, YVES, LISTED]
    zoe, yves, listed = [await sessions.start(person, scope=ENDUSER) for person in people]
    if blocked == "a session":
        sessions.store.set(listed.key, "3\nlines")
    else:
        sessions.store.hset(user_key(identify_user("cep", LISTED.username)), "record", "broken")

    narrowed = parse_seed(SeedText().text.encode())
    outcome = await seeding.apply(narrowed)

    assert outcome.changes == 1
    assert [sessions.live(session) for session in (zoe, yves)] == [[False], [False]]
    assert await sessions.worker.registry.list_pending_scans("pending_realm_scans")
    sessions.store.delete(listed.key, user_key(identify_user("cep", LISTED.username)))
    await seeding.apply(narrowed)
    assert not await sessions.worker.registry.has_pending()


async def test_unreadable_session_of_a_client_keeps_no_realm_waiting(sessions: Sessions, seeding: Seeding) -> None:
    """The scans for a client that lost rights stay pending, and those for a realm run nevertheless."""
    await seeding.apply(make_seed())
    zoe, newer = await sessions.start(ZOE, scope=ENDUSER), await sessions.start(BOB)
    sessions.store.set(newer.key, "3\nlines")
    sessions.store.hset(registry_key("pending_scans"), "no-such-client", "refresh:mark")

    await seeding.apply(parse_seed(SeedText().text.encode()))

    assert sessions.live(zoe) == [False]
    assert await sessions.worker.registry.list_pending_scans("pending_scans")
