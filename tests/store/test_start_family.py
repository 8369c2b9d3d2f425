"""A family started by a password login."""

import io

import pytest

from tests.conftest import Clock
from tests.store.sessions import Sessions
from tests.support.clients_and_users import ALICE, BOB
from tests.support.events import events_of


@pytest.mark.clause("decided-revoke-all-later-tokens-live")
@pytest.mark.parametrize("ahead_ms", [0, 5_000])
async def test_session_after_a_mark_is_younger(sessions: Sessions, ahead_ms: int) -> None:
    """This holds in the millisecond of the mark, and if the clock went backwards since."""
    earlier = await sessions.start()
    marked_ms = sessions.now_ms() + 1_000 + ahead_ms
    sessions.set_mark(earlier, marked_ms)
    later = await sessions.run_at(marked_ms - ahead_ms, sessions.start)

    assert marked_ms + 1 == sessions.parsed(later).created_ms
    assert (await sessions.spend(later, 1)).verdict == "rotated"
    assert (await sessions.spend(earlier, 1)).verdict == "unknown"


@pytest.mark.clause("decided-sessions-per-user")
@pytest.mark.parametrize("by_code", [False, True])
async def test_one_session_too_many_ends_the_first_to_expire(
    sessions: Sessions, clock: Clock, json_logs: io.StringIO, by_code: bool
) -> None:
    sessions.set_lifetimes(sessions_per_user=3)
    bobs = await sessions.start(BOB)
    started = []
    for _ in range(3):
        started.append(await sessions.start())
        clock.advance(1)
    refreshed, first, other = started
    clock.advance(86_400)
    await sessions.refresh(refreshed)
    events_of(json_logs)

    if by_code:
        _, newest = await sessions.redeem(await sessions.issue_code())
    else:
        newest = await sessions.start()

    assert sessions.record(first) is None
    assert sessions.tombstone(first)["reason"] == "session_displaced"
    assert all(sessions.record(each) for each in (refreshed, other, newest, bobs))
    fields = {"client_id": "phone-app", "username": ALICE.username, "realm": "main"}
    fields["session"] = first.first.family_digest
    assert ("session_displaced", fields) in events_of(json_logs)


@pytest.mark.clause("decided-sessions-per-user")
async def test_a_new_session_never_makes_room_for_others(sessions: Sessions) -> None:
    """The client of the new session has short lifetimes, so its session would expire first."""
    sessions.set_lifetimes(sessions_per_user=1)
    earlier = await sessions.start()
    newest = await sessions.start(refresh_token_ttl=60)

    assert (sessions.record(earlier), sessions.live(newest)) == (None, [True])


@pytest.mark.clause("decided-sessions-per-user")
async def test_sessions_that_are_over_do_not_count(sessions: Sessions, clock: Clock) -> None:
    sessions.set_lifetimes(sessions_per_user=2, refresh_token_ms=1_000_000)
    kept = await sessions.start()
    over = await sessions.start()
    clock.advance(900)
    await sessions.refresh(kept)
    clock.advance(101)
    assert sessions.record(over) is None
    newest = await sessions.start()

    assert [sessions.live(each)[-1] for each in (kept, newest)] == [True, True]
    assert not sessions.tombstone(over)


@pytest.mark.clause("decided-sessions-per-user", "decided-newer-record")
@pytest.mark.parametrize("by_code", [False, True])
@pytest.mark.parametrize(("part", "broken"), [("2\n", "3\n"), (" 0:", "0:")])
async def test_unreadable_session_keeps_no_login_waiting(
    sessions: Sessions, by_code: bool, part: str, broken: str
) -> None:
    """It is passed over, and the session that would end next is displaced."""
    sessions.set_lifetimes(sessions_per_user=2)
    newer, second = await sessions.start(), await sessions.start()
    record = str(sessions.record(newer)).replace(part, broken, 1)
    sessions.store.set(newer.key, record, keepttl=True)
    newest = (await sessions.redeem(await sessions.issue_code()))[1] if by_code else await sessions.start()

    assert sessions.record(newer) == record
    assert [sessions.live(each)[0] for each in (newer, second, newest)] == [True, False, True]


@pytest.mark.clause("decided-sessions-per-user")
async def test_a_lower_limit_is_reached_by_further_logins(sessions: Sessions) -> None:
    started = [await sessions.start() for _ in range(25)]
    sessions.set_lifetimes(sessions_per_user=2)
    left = []
    for _ in range(3):
        started.append(await sessions.start())
        left.append(sum(sessions.live(each)[0] for each in started))

    assert left == [16, 7, 2]
    assert sessions.live(started[-1]) == [True]
