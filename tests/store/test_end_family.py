"""A family ended by its own client."""

import pytest

from tests.cast import ALICE
from tests.store.sessions import Session, Sessions


async def end(sessions: Sessions, session: Session, client_id: str = "phone-app") -> str | None:
    return await sessions.families.end(session.identity.shard, session.first.family_digest, client_id=client_id)


@pytest.mark.clause("decided-revoke-any-generation")
async def test_the_family_ends_with_every_access_token_and_leaves_nothing(sessions: Sessions) -> None:
    before = set(sessions.store.scan_iter())
    session = await sessions.start()
    await sessions.refresh(session, 3)

    assert ALICE.username == await end(sessions, session)
    assert sessions.live(session) == [False] * 4
    assert before == set(sessions.store.scan_iter())
    assert (await sessions.spend(session, 4)).verdict == "unknown"


async def test_other_sessions_of_the_user_live_on(sessions: Sessions) -> None:
    ended, other = await sessions.start(), await sessions.start()
    await end(sessions, ended)

    assert sessions.live(other) == [True]
    assert {other.member} == set(sessions.index(other))


@pytest.mark.clause("7009-2.1-own-tokens-only")
async def test_another_client_ends_nothing(sessions: Sessions) -> None:
    session = await sessions.start()
    before = set(sessions.store.scan_iter())

    assert await end(sessions, session, "web-shop") is None
    assert before == set(sessions.store.scan_iter())


async def test_an_unknown_family_is_no_fault(sessions: Sessions) -> None:
    session = await sessions.start()
    await end(sessions, session)

    assert await end(sessions, session) is None


async def test_a_family_that_was_set_aside_for_deletion_leaves_that_list_too(sessions: Sessions) -> None:
    session, other = await sessions.start(), await sessions.start()
    identity = session.identity
    index, revoked = (f"{kind}:{{{identity.shard}}}:{identity.subject}" for kind in ("index", "revoked"))
    sessions.store.rename(index, revoked)
    await end(sessions, session)

    assert [other.member] == sessions.store.zrange(revoked, 0, -1)
