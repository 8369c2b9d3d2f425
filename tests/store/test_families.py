"""A family over its life: its access tokens, its end, and settings that change on the way."""

from typing import Any

import pytest

from tests.conftest import Clock
from tests.store.sessions import KEPT_MS, Sessions
from tests.support.clients_and_users import BOB


@pytest.mark.clause("decided-access-tokens-per-family")
async def test_past_a_hundred_live_access_tokens_the_oldest_is_deleted(sessions: Sessions) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 99)
    assert sessions.live(session) == [True] * 100
    await sessions.refresh(session, 3)

    assert sessions.live(session) == [False] * 3 + [True] * 100
    assert len(sessions.parsed(session).access) == 100


@pytest.mark.clause("decided-access-tokens-per-family")
async def test_replays_count_toward_the_hundred_as_well(sessions: Sessions) -> None:
    session = await sessions.start()
    for generation in range(1, 21):
        await sessions.refresh(session)
        for _ in range(4):
            await sessions.spend(session, generation)

    assert sessions.live(session) == [True] * 2 + [False] + [True] * 98
    record = sessions.parsed(session)
    assert len(record.access) + len(record.replayed) == 100


async def test_expired_access_tokens_leave_the_record(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 5)
    clock.advance(601)
    await sessions.refresh(session)

    assert [entry.generation for entry in sessions.parsed(session).access] == [6]
    assert sessions.live(session) == [False] * 6 + [True]


@pytest.mark.clause("decided-old-access-token-lives-on", "decided-access-token-ttl")
async def test_an_access_token_keeps_its_own_end_when_its_family_goes_on(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    clock.advance(400)
    await sessions.refresh(session)
    clock.advance(199)
    assert sessions.live(session) == [True, True]
    clock.advance(1.5)

    assert sessions.live(session) == [False, True]


@pytest.mark.clause("decided-session-max-age")
async def test_a_session_ends_at_its_greatest_age_however_active(sessions: Sessions, clock: Clock) -> None:
    sessions.set_lifetimes(session_max_age_ms=1_000_000)
    session = await sessions.start()
    clock.advance(900)
    lives_ms = (await sessions.refresh(session)).lives_ms
    assert sessions.elapsed.leaves(lives_ms, 100_000)
    clock.advance(99)
    assert (await sessions.spend(session, 2)).verdict == "rotated"
    clock.advance(1.5)

    assert (await sessions.spend(session, 3)).verdict == "unknown"
    assert sessions.live(session) == [False] * 3


@pytest.mark.clause("decided-session-max-age")
@pytest.mark.parametrize("generation", [1, 2])
async def test_a_greatest_age_that_is_set_later_counts_at_once(
    sessions: Sessions, clock: Clock, generation: int
) -> None:
    session = await sessions.start()
    clock.advance(1_000)
    await sessions.refresh(session)
    sessions.set_lifetimes(session_max_age_ms=1_000_000)

    assert (await sessions.spend(session, generation)).verdict == "unknown"


@pytest.mark.clause("decided-i6-everything-expires", "decided-i7-revocation-is-final")
@pytest.mark.parametrize("shorter", [{"session_max_age_ms": 500_000}, {"refresh_token_ms": 20_000}])
async def test_a_family_cut_short_by_a_setting_stays_known_as_long_as_its_access_tokens(
    sessions: Sessions, clock: Clock, shorter: dict[str, int]
) -> None:
    """Otherwise revokeAll would not find them any more."""
    session = await sessions.start()
    clock.advance(480)
    await sessions.refresh(session)
    sessions.set_lifetimes(**shorter)
    await sessions.refresh(session)
    clock.advance(30)
    assert sessions.live(session) == [True, True, False]
    assert (await sessions.spend(session, 3)).verdict == "unknown"
    await sessions.worker.revocations.revoke_all(session.identity.shard, session.identity.subject)

    assert sessions.live(session) == [False] * 3


async def test_a_longer_lifetime_counts_from_the_next_refresh(sessions: Sessions) -> None:
    sessions.set_lifetimes(refresh_token_ms=50_000)
    session = await sessions.start()
    sessions.set_lifetimes()
    await sessions.refresh(session)

    assert sessions.elapsed.leaves(sessions.pttl(session.key), KEPT_MS)


async def test_a_clock_that_went_backwards_lengthens_no_access_token_beyond_its_family(
    sessions: Sessions, clock: Clock
) -> None:
    session = await sessions.start()
    clock.offset_ms -= 3_600_000
    outcome = await sessions.refresh(session)

    assert outcome.lives_ms == 600_000
    assert 0 < sessions.pttl(session.key) <= KEPT_MS
    assert sessions.live(session) == [True, True]


@pytest.mark.clause("decided-i6-index-pruned", "decided-i6-everything-expires")
async def test_the_index_loses_its_dead_and_lives_as_long_as_its_last(sessions: Sessions, clock: Clock) -> None:
    sessions.set_lifetimes(refresh_token_ms=100_000)
    dead = [await sessions.start() for _ in range(3)]
    sessions.set_lifetimes(refresh_token_ms=1_000_000)
    long = await sessions.start()
    clock.advance(111)
    assert {session.member for session in [*dead, long]} == set(sessions.index(long))
    sessions.set_lifetimes(refresh_token_ms=100_000)
    before_ms = sessions.now_ms()
    short = await sessions.start()
    took_ms = sessions.now_ms() - before_ms
    index = sessions.index(long)

    assert set(index) == {long.member, short.member}
    expires_ms: Any = sessions.store.pexpiretime(f"index:{{{long.identity.shard}}}:{long.identity.subject}")
    assert 0 <= expires_ms + clock.offset_ms - index[long.member] <= took_ms


async def test_families_of_different_users_do_not_meet(sessions: Sessions) -> None:
    alice, bob = await sessions.start(), await sessions.start(BOB)
    shard, digest = alice.identity.shard, alice.first.family_digest
    await sessions.families.end(shard, digest, client_id="phone-app", reason="revoked")

    assert (sessions.live(alice), sessions.live(bob)) == ([False], [True])
