"""The look-ahead: the key of a family and its entry in the index live a little longer than the family needs, so that
most refreshes write neither.
"""

import random

import pytest

from service.redis_client.deadline import StoreUnavailable
from service.store.keys import index_key
from tests.conftest import Clock
from tests.store.sessions import KEPT_MS, Session, Sessions

DAY = 86_400


def kept_for_ms(sessions: Sessions, session: Session) -> int:
    """Return how much longer than the family its entry in the index lives."""
    return sessions.index(session)[session.member] - sessions.parsed(session).lives_until_ms


@pytest.mark.clause("decided-i6-everything-expires")
async def test_a_refresh_writes_the_index_only_when_the_look_ahead_is_used_up(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    begun, ttl_ms = sessions.index(session), sessions.pttl(session.key)
    clock.advance(DAY - 1)
    await sessions.refresh(session)
    assert begun == sessions.index(session)
    assert sessions.elapsed.leaves(sessions.pttl(session.key), ttl_ms - (DAY - 1) * 1000)
    clock.advance(2)
    await sessions.refresh(session)

    assert sessions.index(session)[session.member] > begun[session.member]
    assert sessions.elapsed.leaves(sessions.pttl(session.key), KEPT_MS)


@pytest.mark.clause("decided-i6-everything-expires")
@pytest.mark.parametrize(
    ("refresh_token_ms", "look_ahead_ms"), [(2_592_000_000, 86_400_000), (60_000, 6_000), (1_005, 100), (9, 0)]
)
async def test_the_look_ahead_is_a_tenth_of_the_lifetime_and_at_most_a_day(
    sessions: Sessions, refresh_token_ms: int, look_ahead_ms: int
) -> None:
    sessions.set_lifetimes(refresh_token_ms=refresh_token_ms)
    at_ms = sessions.now_ms()
    started = await sessions.run_at(at_ms, sessions.start)

    assert sessions.index(started)[started.member] == at_ms + refresh_token_ms + look_ahead_ms


@pytest.mark.clause("decided-i6-everything-expires", "decided-i7-revocation-is-final")
@pytest.mark.parametrize("seed", range(8))
async def test_key_and_entry_live_as_long_as_the_family_and_at_most_the_look_ahead_longer(
    sessions: Sessions, clock: Clock, seed: int
) -> None:
    """Also after the lifetimes were changed, and beside replays, which issue access tokens."""
    dice = random.Random(seed)
    session = await sessions.start()
    for _ in range(40):
        refresh_token_ms = dice.choice((3_600_000, 86_400_000, 2_592_000_000))
        max_age_ms = dice.choice((None, None, 7_200_000, 864_000_000))
        sessions.set_lifetimes(refresh_token_ms=refresh_token_ms, session_max_age_ms=max_age_ms)
        clock.advance(dice.choice((0, 10, 400, 3_000)))
        if not sessions.record(session):  # it is over
            session = await sessions.start()
        head = sessions.parsed(session).head
        outcome = await sessions.spend(session, dice.choice((head, head, max(1, head - 1))))
        if outcome.verdict in ("unknown", "replayed"):
            session = await sessions.start()
        elif outcome.verdict == "rotated":
            assert 0 <= kept_for_ms(sessions, session) <= min(86_400_000, refresh_token_ms // 10)
        assert kept_for_ms(sessions, session) >= 0
        lives_ms = sessions.parsed(session).lives_until_ms - sessions.now_ms()
        assert sessions.pttl(session.key) >= lives_ms - 1_000


@pytest.mark.clause("decided-i6-everything-expires", "decided-session-max-age")
async def test_the_look_ahead_ends_at_the_maximum_age(sessions: Sessions, clock: Clock) -> None:
    sessions.set_lifetimes(session_max_age_ms=28_800_000)
    session = await sessions.start()
    created_ms = sessions.parsed(session).created_ms
    assert sessions.index(session)[session.member] == created_ms + 28_800_000
    assert sessions.elapsed.leaves(sessions.pttl(session.key), 28_800_000)
    # A longer maximum age counts from the next refresh, which writes index and key.
    sessions.set_lifetimes(session_max_age_ms=864_000_000)
    clock.advance(60)
    await sessions.refresh(session)

    assert sessions.index(session)[session.member] == created_ms + 864_000_000


@pytest.mark.clause("decided-i6-everything-expires")
async def test_an_index_made_by_a_revocation_that_fails_has_an_end(sessions: Sessions) -> None:
    """A revokeAll for an earlier time returns a member to the index, and then meets a record that it cannot read."""
    younger, unreadable = await sessions.start(), await sessions.start()
    shard, subject = younger.identity.shard, younger.identity.subject
    until_ms = sessions.parsed(younger).created_ms - 1
    sessions.store.zadd(index_key(shard, subject), {younger.member: sessions.index(younger)[younger.member] - 10})
    sessions.store.hset(unreadable.key, "v", "3 of a later version")
    with pytest.raises(StoreUnavailable):
        await sessions.worker.revocations.revoke_all(shard, subject, until_ms=until_ms)

    assert set(sessions.index(younger)) == {younger.member}
    assert sessions.pttl(index_key(shard, subject)) > 0
    # The session is listed although its unreadable neighbour is still set aside.
    sessions.store.delete(unreadable.key)
    listed, _ = await sessions.families.list_of_user(younger.identity, 9)
    assert [digest for digest, _ in listed] == [younger.first.family_digest]


async def test_sessions_that_a_failed_revocation_set_aside_are_listed(sessions: Sessions) -> None:
    unreadable, younger = await sessions.start(), await sessions.start()
    shard, subject = younger.identity.shard, younger.identity.subject
    until_ms = sessions.parsed(unreadable).created_ms - 1
    sessions.store.zadd(index_key(shard, subject), {unreadable.member: sessions.now_ms() + 1})
    sessions.store.hset(unreadable.key, "v", "3 of a later version")
    with pytest.raises(StoreUnavailable):
        await sessions.worker.revocations.revoke_all(shard, subject, until_ms=until_ms)
    sessions.store.delete(unreadable.key)

    assert sessions.index(younger) == {}
    listed, _ = await sessions.families.list_of_user(younger.identity, 9)
    assert [digest for digest, _ in listed] == [younger.first.family_digest]


async def test_a_family_that_is_over_cannot_be_ended_again(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    clock.advance(30 * DAY + 1)
    shard, digest = session.identity.shard, session.first.family_digest

    assert sessions.record(session)
    assert await sessions.families.end(shard, digest, client_id="phone-app", reason="revoked") is None
    assert sessions.tombstone(session) == {}


async def test_a_family_that_is_over_is_not_listed_while_its_key_lives(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    clock.advance(30 * DAY - 1)
    assert [digest for digest, _ in (await sessions.families.list_of_user(session.identity, 9))[0]]
    clock.advance(2)

    assert sessions.record(session)
    assert await sessions.families.list_of_user(session.identity, 9) == ([], False)
    assert (await sessions.spend(session, 1)).verdict == "unknown"
