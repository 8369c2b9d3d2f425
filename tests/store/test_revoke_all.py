"""The mark of a revokeAll: the user's sessions count as dead from then on and are set aside for deletion."""

import pytest

from service.protocol.user import identify_user
from service.store.keys import index_key, mark_key, revoked_key
from tests.conftest import Clock
from tests.store.sessions import Session, Sessions
from tests.support.clients_and_users import ALICE

IDENTITY = identify_user("main", ALICE.username)
MARK, INDEX, REVOKED = (key(IDENTITY.shard, IDENTITY.digest) for key in (mark_key, index_key, revoked_key))


async def mark(sessions: Sessions, kept: Session | None = None, *, until_ms: int = 0) -> str:
    """Run a step that deletes nothing. Returns `resumed` if the user must be marked again."""
    _, returned_ms = await sessions.run_revoke_all(IDENTITY, 0, kept=kept, until_ms=until_ms)
    assert int(returned_ms) in (0, marked_ms(sessions))
    return "marked" if returned_ms else "resumed"


def marked_ms(sessions: Sessions) -> int:
    return int(str(sessions.store.get(MARK)))


async def test_mark_moves_the_index_to_its_own_key(sessions: Sessions) -> None:
    session = await sessions.start()
    code = await sessions.issue_code()

    assert await mark(sessions) == "marked"
    assert {session.member, f"code:{code.digest}"} <= set_aside(sessions)
    assert {"family", "code", "consent"} == {member.partition(":")[0] for member in set_aside(sessions)}
    assert not sessions.store.exists(INDEX)


async def test_second_mark_covers_the_time_between(sessions: Sessions) -> None:
    """This holds within one millisecond, and if the clock went backwards."""
    await mark(sessions)
    first_ms = marked_ms(sessions)
    between = await sessions.run_at(first_ms - 1_000, sessions.start)
    await sessions.run_at(first_ms - 1_000, lambda: mark(sessions))

    assert first_ms + 1 == marked_ms(sessions)
    assert (await sessions.spend(between, 1)).verdict == "unknown"


@pytest.mark.clause("decided-i6-everything-expires")
async def test_the_mark_outlives_all_that_it_covers(sessions: Sessions) -> None:
    session = await sessions.start()
    await mark(sessions)

    assert sessions.pttl(MARK) > sessions.pttl(session.key) + 50_000
    assert sessions.pttl(REVOKED) > 0


async def test_a_mark_without_anything_to_cover_lives_for_a_minute(sessions: Sessions) -> None:
    await mark(sessions)

    assert sessions.elapsed.leaves(sessions.pttl(MARK), 60_000)


async def test_a_second_mark_does_not_shorten_the_first(sessions: Sessions) -> None:
    session = await sessions.start()
    await mark(sessions)
    await mark(sessions)

    assert sessions.pttl(MARK) > sessions.pttl(session.key)


async def test_interrupted_revoke_all_is_finished_first(sessions: Sessions) -> None:
    earlier = await sessions.start()
    await mark(sessions)
    between, first_ms = await sessions.start(), marked_ms(sessions)

    assert await mark(sessions) == "resumed"
    assert [earlier.member] == sessions.store.zrange(REVOKED, 0, -1)
    assert {between.member} == set(sessions.index(between))
    assert first_ms == marked_ms(sessions)


def set_aside(sessions: Sessions) -> set[str]:
    return {str(member) for member in sessions.store.zrange(REVOKED, 0, -1)}


@pytest.mark.clause("decided-revoke-all-presented-token-last")
async def test_kept_member_moves_with_its_key(sessions: Sessions) -> None:
    """The revokeAll before broke off at its last step."""
    kept = await sessions.start()
    await mark(sessions, kept)
    between = await sessions.start()

    assert await mark(sessions, kept) == "marked"
    assert set_aside(sessions) == {kept.member, between.member}
    assert not sessions.store.exists(INDEX)
    assert sessions.live(kept) == [True]


@pytest.mark.clause("decided-revoke-all-presented-token-last")
async def test_kept_member_stays_while_a_remainder_exists(sessions: Sessions) -> None:
    kept, earlier = await sessions.start(), await sessions.start()
    await mark(sessions, kept)
    between = await sessions.start()

    assert await mark(sessions, kept) == "resumed"
    assert set_aside(sessions) == {kept.member, earlier.member}
    assert {between.member} == set(sessions.index(between))


async def test_member_kept_by_another_call_is_deleted(sessions: Sessions) -> None:
    kept_before = await sessions.start()
    await mark(sessions, kept_before)
    asks_now = await sessions.start()

    assert await mark(sessions, asks_now) == "resumed"
    assert set_aside(sessions) == {kept_before.member}
    assert {asks_now.member} == set(sessions.index(asks_now))


@pytest.mark.clause("decided-i6-everything-expires")
@pytest.mark.parametrize("logs_in_again", [False, True])
async def test_a_kept_member_that_moves_along_still_expires(sessions: Sessions, logs_in_again: bool) -> None:
    kept = await sessions.start()
    await mark(sessions, kept)
    if logs_in_again:
        await sessions.start()

    assert await mark(sessions, kept) == "marked"
    assert sessions.pttl(REVOKED) > sessions.pttl(kept.key)
    assert sessions.pttl(MARK) > sessions.pttl(kept.key)
    assert not sessions.store.exists(INDEX)


@pytest.mark.clause("decided-revoke-all-issued-before")
async def test_mark_for_an_earlier_time_covers_older_records_only(sessions: Sessions, clock: Clock) -> None:
    older = await sessions.start()
    until_ms = sessions.parsed(older).created_ms
    clock.advance(10)
    younger, code = await sessions.start(), await sessions.issue_code()

    assert await mark(sessions, until_ms=until_ms) == "marked"
    assert until_ms == marked_ms(sessions)
    assert (await sessions.spend(older, 1)).verdict == "unknown"
    assert (await sessions.spend(younger, 1)).verdict == "rotated"
    assert (await sessions.redeem(code))[0] == 600_000


@pytest.mark.clause("decided-revoke-all-issued-before", "decided-i7-revocation-is-final")
async def test_earlier_mark_does_not_lower_a_later_one(sessions: Sessions) -> None:
    session = await sessions.start()
    await mark(sessions)
    first_ms, ttl_ms = marked_ms(sessions), sessions.pttl(MARK)
    await mark(sessions, until_ms=first_ms - 1_000_000)

    assert first_ms == marked_ms(sessions)
    assert sessions.elapsed.leaves(sessions.pttl(MARK), ttl_ms)
    assert (await sessions.spend(session, 1)).verdict == "unknown"


@pytest.mark.clause("decided-revoke-all-issued-before")
async def test_future_mark_means_now(sessions: Sessions) -> None:
    session, before_ms = await sessions.start(), sessions.now_ms()
    await mark(sessions, until_ms=before_ms + 1_000_000)

    assert before_ms <= marked_ms(sessions) <= sessions.now_ms()
    assert (await sessions.spend(session, 1)).verdict == "unknown"
    assert (await sessions.spend(await sessions.start(), 1)).verdict == "rotated"


@pytest.mark.clause("decided-revoke-all-issued-before")
async def test_a_kept_member_that_was_refreshed_keeps_its_longer_life(sessions: Sessions, clock: Clock) -> None:
    """A revokeAll for an earlier time was cut short, and a session that it had set aside was refreshed."""
    kept = await sessions.start()
    await mark(sessions, until_ms=sessions.parsed(kept).created_ms - 1)
    clock.advance(100_000)
    await sessions.refresh(kept)
    ends_ms = sessions.index(kept)[kept.member]

    assert await mark(sessions, kept) == "marked"
    assert ends_ms == sessions.store.zscore(REVOKED, kept.member)
    assert sessions.pttl(REVOKED) > sessions.pttl(kept.key)
