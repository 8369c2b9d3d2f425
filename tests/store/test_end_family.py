"""A family ended by its own client."""

import pytest

from service.protocol.user import User
from service.redis_client.deadline import StoreUnavailable, UnreadableRecord
from service.store.keys import ended_key
from tests.conftest import Clock
from tests.store.sessions import ENDUSER, Session, Sessions
from tests.support.clients_and_users import ALICE


async def end(sessions: Sessions, session: Session, client_id: str = "phone-app") -> User | None:
    shard, digest = session.identity.shard, session.first.family_digest
    return await sessions.families.end(shard, digest, client_id=client_id, reason="revoked")


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
        "subject": (await sessions.find_user()).subject,
        "username": ALICE.username,
        "scope": ENDUSER,
    }
    key = ended_key(session.identity.shard, session.first.family_digest)
    assert sessions.elapsed.leaves(sessions.pttl(key), 86_400_000)


async def test_set_aside_family_leaves_its_list(sessions: Sessions) -> None:
    session, other = await sessions.start(), await sessions.start()
    identity = session.identity
    index, revoked = (f"{kind}:{{{identity.shard}}}:{identity.digest}" for kind in ("index", "revoked"))
    sessions.store.rename(index, revoked)
    await end(sessions, session)

    assert [other.member] == sessions.store.zrange(revoked, 0, -1)


@pytest.mark.clause("decided-newer-record", "decided-i7-revocation-is-final")
@pytest.mark.parametrize(
    ("part", "broken"), [(" 1:", "1:"), (":600000:", ":600 000:"), ("\n2 0:", "\n3 0:"), ("realm:main ", "")]
)
async def test_family_with_a_broken_line_is_not_ended(sessions: Sessions, part: str, broken: str) -> None:
    """One of its access tokens could stay, and the answer would say that none is left."""
    session = await sessions.start()
    await sessions.refresh(session)
    record = str(sessions.record(session)).replace(part, broken)
    sessions.store.set(session.key, record, keepttl=True)
    with pytest.raises(UnreadableRecord):
        await end(sessions, session)
    with pytest.raises(StoreUnavailable):
        await sessions.worker.revocations.revoke_all(session.identity.shard, session.identity.digest)
    assert (sessions.record(session), sessions.live(session)) == (record, [True, True])
