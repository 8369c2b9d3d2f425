"""A family ended by its own client."""

import pytest

from service.protocol.user import UserIdentity
from service.store.keys import ended_key
from tests.conftest import Clock
from tests.store.sessions import ENDUSER, Session, Sessions
from tests.support.clients_and_users import ALICE


async def end(sessions: Sessions, session: Session, client_id: str = "phone-app") -> UserIdentity | None:
    shard, digest = session.identity.shard, session.first.family_digest
    return await sessions.families.end(shard, digest, client_id=client_id, reason="revoked")


@pytest.mark.clause("decided-revoke-any-generation")
async def test_family_ends_with_all_of_its_access_tokens(sessions: Sessions) -> None:
    before = set(sessions.store.scan_iter())
    session = await sessions.start()
    await sessions.refresh(session, 3)

    assert session.identity == await end(sessions, session)
    assert sessions.live(session) == [False] * 4
    left = set(sessions.store.scan_iter()) - before
    assert {ended_key(session.identity.shard, session.first.family_digest)} == left
    assert (await sessions.spend(session, 4)).verdict == "unknown"


@pytest.mark.clause("decided-ended-families", "decided-i6-everything-expires")
async def test_for_a_day_its_tombstone_says_when_and_why_it_ended(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 3)
    clock.advance(100)
    created_ms, before_ms = str(sessions.parsed(session).created_ms), sessions.now_ms()
    await end(sessions, session)
    tombstone = sessions.tombstone(session)

    assert before_ms <= int(tombstone.pop("ended_ms")) <= sessions.now_ms()
    assert tombstone == {
        "version": "2",
        "reason": "revoked",
        "head": "4",
        "presented": "",
        "spent_ms": "",
        "created_ms": created_ms,
        "client_id": "phone-app",
        "subject": session.identity.subject,
        "username": ALICE.username,
        "scope": ENDUSER,
    }
    key = ended_key(session.identity.shard, session.first.family_digest)
    assert sessions.elapsed.leaves(sessions.pttl(key), 86_400_000)


@pytest.mark.clause("7009-2.1-own-tokens-only")
async def test_another_client_ends_nothing(sessions: Sessions) -> None:
    session = await sessions.start()
    before = set(sessions.store.scan_iter())

    assert await end(sessions, session, "web-shop") is None
    assert before == set(sessions.store.scan_iter())


async def test_set_aside_family_leaves_its_list(sessions: Sessions) -> None:
    session, other = await sessions.start(), await sessions.start()
    identity = session.identity
    index, revoked = (f"{kind}:{{{identity.shard}}}:{identity.subject}" for kind in ("index", "revoked"))
    sessions.store.rename(index, revoked)
    await end(sessions, session)

    assert [other.member] == sessions.store.zrange(revoked, 0, -1)
