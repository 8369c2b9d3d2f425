"""What Redis still holds about a session, judged as the service judges it."""

import pytest

from service.store.records import TombstoneRecord
from service.store.reports.token_inspection import KnownFamily, find_family
from tests.conftest import Clock
from tests.store.sessions import Session, Sessions

pytestmark = pytest.mark.clause("decided-token-inspection")


async def find(sessions: Sessions, session: Session) -> KnownFamily | TombstoneRecord | None:
    redis, digest = sessions.worker.redis, session.first.family_digest
    return await find_family(redis, session.identity.shard, digest, sessions.now_ms())


async def find_known(sessions: Sessions, session: Session) -> KnownFamily:
    family = await find(sessions, session)
    assert isinstance(family, KnownFamily)
    return family


async def test_the_live_access_tokens_of_a_family_are_counted(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    clock.advance(100)
    await sessions.refresh(session, 2)

    record = sessions.parsed(session)
    assert await find(sessions, session) == KnownFamily(record, "live", access_tokens=3, marked_at_ms=0)
    clock.advance(550)
    assert (await find_known(sessions, session)).access_tokens == 2


async def test_covered_and_expired_tokens_have_separate_verdicts(sessions: Sessions, clock: Clock) -> None:
    sessions.set_lifetimes(refresh_token_ms=60_000)
    session = await sessions.start()
    created_ms = sessions.parsed(session).created_ms
    sessions.set_mark(session, created_ms - 1)
    assert (await find_known(sessions, session)).state == "live"
    clock.offset_ms += 61_000
    family = await find_known(sessions, session)
    assert (family.state, family.record.expires_ms) == ("over", created_ms + 60_000)
    sessions.set_mark(session, created_ms)
    family = await find_known(sessions, session)
    assert (family.state, family.marked_at_ms) == ("revoked", created_ms)
