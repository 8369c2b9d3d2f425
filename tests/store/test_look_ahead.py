"""The look-ahead: the key of a family and its entry in the index live a little longer than the family needs, so that
most refreshes write neither.
"""

import random

import pytest

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
        head = sessions.parsed(session).head
        outcome = await sessions.spend(session, dice.choice((head, head, max(1, head - 1))))
        if outcome.verdict in ("unknown", "replayed"):
            session = await sessions.start()
        elif outcome.verdict == "rotated":
            assert 0 <= kept_for_ms(sessions, session) <= min(86_400_000, refresh_token_ms // 10)
        assert kept_for_ms(sessions, session) >= 0
        lives_ms = sessions.parsed(session).lives_until_ms - sessions.now_ms()
        assert sessions.pttl(session.key) >= lives_ms - 1_000


async def test_a_family_that_is_over_is_not_listed_while_its_key_lives(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    clock.advance(30 * DAY - 1)
    assert [digest for digest, _ in (await sessions.families.list_of_user(session.identity, 9))[0]]
    clock.advance(2)

    assert sessions.record(session)
    assert await sessions.families.list_of_user(session.identity, 9) == ([], False)
    assert (await sessions.spend(session, 1)).verdict == "unknown"
