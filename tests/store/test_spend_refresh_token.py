"""A generation of a family spent, replayed within the grace or after it, or refused without a change."""

import pytest

from service.redis_client.deadline import StoreUnavailable
from service.store.sessions.families import RefreshRefused
from tests.conftest import Clock
from tests.store.sessions import Session, Sessions


async def refused_and_untouched(sessions: Sessions, session: Session, generation: int, **how: object) -> str:
    """Return the verdict of a refusal. It must not change record, access tokens or lifetime."""
    before = sessions.record(session), sessions.live(session), set(sessions.store.scan_iter())
    ttl_ms = sessions.pttl(session.key)
    outcome = await sessions.spend(session, generation, **how)  # type: ignore[arg-type]

    assert isinstance(outcome, RefreshRefused)
    assert before == (sessions.record(session), sessions.live(session), set(sessions.store.scan_iter()))
    assert sessions.elapsed.leaves(sessions.pttl(session.key), ttl_ms)
    return outcome.verdict


@pytest.mark.clause("decided-refresh-token-ttl")
async def test_a_refresh_begins_the_familys_life_anew(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    clock.advance(1_000_000)
    await sessions.spend(session, 1)
    ends_ms = sessions.parsed(session).expires_ms

    assert sessions.elapsed.leaves(ends_ms - sessions.now_ms(), 2_592_000_000)
    assert sessions.elapsed.leaves(sessions.pttl(session.key), 2_592_000_000)
    assert ends_ms + 86_400_000 == sessions.index(session)[session.member]


@pytest.mark.clause("decided-ended-families")
async def test_tombstone_names_the_replayed_generation(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    await sessions.refresh(session)
    spent_ms = sessions.parsed(session).used_ms
    await sessions.refresh(session)
    clock.advance(301)
    await sessions.spend(session, 1)
    tombstone = sessions.tombstone(session)

    assert ("replayed", "3", "1", str(spent_ms)) == tuple(
        tombstone[line] for line in ("reason", "head", "presented", "spent_ms")
    )
    assert sessions.elapsed.leaves(int(tombstone["ended_ms"]) - sessions.now_ms(), 0)


@pytest.mark.clause("decided-ended-families")
async def test_tombstone_omits_an_unknown_time(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    await sessions.refresh(session)
    clock.advance(601)
    await sessions.refresh(session)
    await sessions.spend(session, 1)

    tombstone = sessions.tombstone(session)
    assert (tombstone["presented"], tombstone["spent_ms"]) == ("1", "")


async def test_a_word_of_the_scope_is_compared_as_a_whole(sessions: Sessions) -> None:
    """`role:end` is not a part of `role:enduser`, nor the other way round."""
    session = await sessions.start()

    assert await refused_and_untouched(sessions, session, 1, allowed_scope="realm:main role:enduserx") == "withdrawn"
    assert await refused_and_untouched(sessions, session, 1, wanted_scope="realm:main role:end") == "beyond"


@pytest.mark.clause("decided-grace-does-not-revive")
@pytest.mark.parametrize("generation", [1, 2])
async def test_family_covered_by_a_mark_is_not_refreshed(sessions: Sessions, generation: int) -> None:
    session = await sessions.start()
    await sessions.refresh(session)
    sessions.set_mark(session, sessions.parsed(session).created_ms)

    assert await refused_and_untouched(sessions, session, generation) == "unknown"


async def test_a_mark_older_than_the_family_means_nothing_to_it(sessions: Sessions) -> None:
    session = await sessions.start()
    sessions.set_mark(session, sessions.parsed(session).created_ms - 1)

    assert (await sessions.spend(session, 1)).verdict == "rotated"


async def test_the_record_decides_when_the_family_is_over_not_the_key(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    clock.offset_ms += 2_592_000_000

    assert await refused_and_untouched(sessions, session, 1) == "unknown"
    clock.offset_ms -= 2_000
    assert (await sessions.spend(session, 1)).verdict == "rotated"


async def test_record_of_another_version_is_an_outage(sessions: Sessions) -> None:
    session = await sessions.start()
    sessions.store.set(session.key, (sessions.record(session) or "").replace("2", "3", 1), keepttl=True)

    with pytest.raises(StoreUnavailable, match="another version"):
        await sessions.spend(session, 1)


async def test_lines_of_a_newer_version_outlive_a_refresh(sessions: Sessions) -> None:
    session = await sessions.start()
    sessions.store.append(session.key, "\na further line\n\0\nand more")
    await sessions.refresh(session, 2)
    await sessions.spend(session, 1)

    assert str(sessions.record(session)).endswith("\na further line\n\0\nand more")
    assert sessions.parsed(session).head == 3
