"""A family over its life: its access tokens, its end, its place in the list, and settings that change on the way."""

import random
from typing import Any

import pytest

from service.store.records import FamilyRecord, parse_family
from service.store.user_index import list_records
from tests.conftest import Clock
from tests.store.pages import Pages
from tests.store.sessions import Sessions
from tests.support.clients_and_users import BOB

pytestmark = pytest.mark.single_server("test_spend_refresh_token.py and test_revocations.py run the scripts elsewhere")

DAY = 86_400


async def list_all(sessions: Sessions) -> list[str]:
    """Return the digests of Alice's families as the page of her sessions lists them."""
    found, more = await sessions.families.list_of_user((await sessions.find_user()).identity, 100)
    assert not more
    return [digest for digest, _ in found]


@pytest.mark.clause("decided-i6-everything-expires", "decided-i7-revocation-is-final")
@pytest.mark.parametrize("shorter", [{"session_max_age_ms": 500_000}, {"refresh_token_ms": 20_000}])
async def test_shortened_family_is_known_until_its_access_tokens_end(
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
    await sessions.worker.revocations.revoke_all(session.identity.shard, session.identity.digest)

    assert sessions.live(session) == [False] * 3


async def test_clock_set_back_never_lets_access_token_outlive_family(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    clock.offset_ms -= 3_600_000
    outcome = await sessions.refresh(session)

    assert outcome.lives_ms == 600_000
    assert 0 < sessions.pttl(session.key) <= 2_592_000_000
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
    index = sessions.index(long)
    left_ms: Any = sessions.store.pttl(f"index:{{{long.identity.shard}}}:{long.identity.digest}")
    after_ms = sessions.now_ms()

    assert set(index) == {long.member, short.member}
    assert 0 <= after_ms + left_ms - index[long.member] <= after_ms - before_ms


@pytest.mark.clause("decided-i6-everything-expires")
async def test_most_refreshes_leave_the_index_alone(sessions: Sessions, clock: Clock) -> None:
    """The entry lives a day longer than the family, until a refresh finds that day used up."""
    session = await sessions.start()
    begun = sessions.index(session)
    clock.advance(DAY - 1)
    await sessions.refresh(session)
    assert begun == sessions.index(session)
    clock.advance(2)
    await sessions.refresh(session)

    assert sessions.index(session)[session.member] > begun[session.member]


@pytest.mark.clause("decided-i6-everything-expires", "decided-i7-revocation-is-final")
@pytest.mark.parametrize("seed", range(3))
async def test_key_and_entry_live_as_long_as_the_family(sessions: Sessions, clock: Clock, seed: int) -> None:
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
        lives_until_ms = sessions.parsed(session).lives_until_ms
        longer_ms = sessions.index(session)[session.member] - lives_until_ms
        assert longer_ms >= 0
        assert outcome.verdict == "withdrawn" or longer_ms <= min(86_400_000, refresh_token_ms // 10)
        assert abs(sessions.pttl(session.key) - (lives_until_ms - sessions.now_ms())) < 1_000


@pytest.mark.clause("decided-i6-everything-expires", "decided-session-max-age")
async def test_the_record_ends_at_the_maximum_age(sessions: Sessions) -> None:
    sessions.set_lifetimes(session_max_age_ms=28_800_000)
    session = await sessions.start()

    assert sessions.elapsed.leaves(sessions.pttl(session.key), 28_800_000)


async def test_an_expired_family_is_not_listed(sessions: Sessions, clock: Clock) -> None:
    """The clock of the scripts decides, although the key still lives."""
    session = await sessions.start()
    clock.offset_ms += 1000 * (30 * DAY - 2)
    assert await list_all(sessions) == [session.first.family_digest]
    clock.offset_ms += 2_000

    assert sessions.record(session)
    assert await list_all(sessions) == []


async def test_the_last_used_families_are_listed_first(sessions: Sessions, clock: Clock) -> None:
    started = []
    for _ in range(4):
        clock.advance(10)
        started.append(await sessions.start())
    await sessions.start(BOB)
    clock.advance(10)
    await sessions.refresh(started[1])
    clock.advance(10)
    await sessions.spend(started[0], 1)
    await sessions.spend(started[0], 1)
    used_ms = sessions.parsed(started[0]).used_ms
    clock.advance(10)
    await sessions.spend(started[0], 1)

    assert sessions.parsed(started[0]).used_ms == used_ms
    assert await list_all(sessions) == [started[each].first.family_digest for each in (0, 1, 3, 2)]
    found, more = await sessions.families.list_of_user(started[0].identity, 3)
    assert (len(found), more) == (3, True)


@pytest.mark.parametrize("step", [1, 2, 7])
async def test_other_index_members_do_not_hide_families(sessions: Sessions, pages: Pages, step: int) -> None:
    started = [await sessions.start() for _ in range(4)]
    for _ in range(3):
        page = await pages.open(browser=await pages.sign_in(lifetime_ms=2_592_000_000))
        await pages.sign_in(lifetime_ms=60_000)
        await pages.allow(page)

    async def list_families(most: int) -> tuple[list[tuple[str, FamilyRecord]], bool]:
        redis, identity = sessions.worker.redis, started[0].identity
        return await list_records(redis, identity, "family", most, parse_family, members_at_once=step)

    found, more = await list_families(4)
    assert {digest for digest, _ in found} == {session.first.family_digest for session in started}
    assert not more
    assert (await list_families(2))[1]


async def test_a_family_is_listed_while_its_access_tokens_live(sessions: Sessions, clock: Clock) -> None:
    """The user may want to end them."""
    sessions.set_lifetimes(refresh_token_ms=600_000)
    session = await sessions.start()
    sessions.set_lifetimes(refresh_token_ms=20_000)
    await sessions.refresh(session)
    clock.advance(30)
    assert (await sessions.spend(session, 2)).verdict == "unknown"
    assert await list_all(sessions) == [session.first.family_digest]
    clock.advance(571)

    assert await list_all(sessions) == []


@pytest.mark.clause("decided-i7-revocation-is-final")
async def test_families_covered_by_a_mark_are_not_listed(sessions: Sessions) -> None:
    earlier = await sessions.start()
    sessions.set_mark(earlier, sessions.parsed(earlier).created_ms)
    later = await sessions.start()

    assert await list_all(sessions) == [later.first.family_digest]
