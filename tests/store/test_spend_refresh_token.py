"""A generation of a family spent, replayed within the grace or after it, or refused without a change."""

import pytest

from service.redis_client.deadline import StoreUnavailable
from service.store.sessions.families import RefreshRefused, Spent
from tests.conftest import Clock
from tests.store.sessions import ENDUSER, Session, Sessions
from tests.support.clients_and_users import ALICE

BOTH_ROLES = "realm:main role:enduser role:organisation"


async def refused_and_untouched(sessions: Sessions, session: Session, generation: int, **how: object) -> str:
    """Return the verdict of a refusal. It must not change record, access tokens or lifetime."""
    before = sessions.record(session), sessions.live(session), set(sessions.store.scan_iter())
    ttl_ms = sessions.pttl(session.key)
    outcome = await sessions.spend(session, generation, **how)  # type: ignore[arg-type]

    assert isinstance(outcome, RefreshRefused)
    assert before == (sessions.record(session), sessions.live(session), set(sessions.store.scan_iter()))
    assert sessions.elapsed.leaves(sessions.pttl(session.key), ttl_ms)
    return outcome.verdict


@pytest.mark.clause("spec-3-refresh-rotates")
async def test_the_head_is_spent_and_the_next_generation_is_the_head(sessions: Sessions) -> None:
    session = await sessions.start()
    outcome = await sessions.spend(session, 1)

    assert Spent("rotated", 2, 600_000, ENDUSER, ALICE.username, session.identity.subject, 0, 0) == outcome
    assert sessions.parsed(session).head == 2
    assert (await sessions.spend(session, 2)).verdict == "rotated"
    assert sessions.parsed(session).head == 3


@pytest.mark.clause("decided-refresh-token-ttl")
async def test_a_refresh_begins_the_familys_life_anew(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    clock.advance(1_000_000)
    await sessions.spend(session, 1)
    ends_ms = sessions.parsed(session).expires_ms

    assert sessions.elapsed.leaves(ends_ms - sessions.now_ms(), 2_592_000_000)
    assert sessions.elapsed.leaves(sessions.pttl(session.key), 2_592_000_000)
    assert ends_ms + 86_400_000 == sessions.index(session)[session.member]


@pytest.mark.clause("decided-replay-gets-the-head", "decided-replay-keeps-ttl")
async def test_a_replay_in_time_gets_the_head_and_moves_nothing(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 3)
    clock.advance(200)
    before, ttl_ms, index = sessions.parsed(session), sessions.pttl(session.key), sessions.index(session)
    outcome = await sessions.spend(session, 3)
    after = sessions.parsed(session)

    assert Spent("repeated", 4, 600_000, ENDUSER, ALICE.username, session.identity.subject, 1, 1) == outcome
    assert after == before._replace(
        access_until_ms=after.access_until_ms, replayed="3:1:1", replay_tokens=after.replay_tokens
    )
    assert sessions.elapsed.leaves(sessions.pttl(session.key), ttl_ms)
    assert index == sessions.index(session)
    assert sessions.live(session) == [True] * 5


@pytest.mark.clause("decided-late-replay-ends-family")
async def test_a_replay_too_late_ends_the_family_and_all_that_it_gave(sessions: Sessions, clock: Clock) -> None:
    session, other = await sessions.start(), await sessions.start()
    await sessions.refresh(session, 2)
    clock.advance(301)

    refused = RefreshRefused("replayed", "", ENDUSER, ALICE.username, session.identity.subject)
    assert refused == await sessions.spend(session, 1)
    assert sessions.record(session) is None
    assert sessions.live(session) == [False] * 3
    assert {other.member} == set(sessions.index(other))
    assert RefreshRefused("unknown") == await sessions.spend(session, 3)
    assert sessions.live(other) == [True]


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


@pytest.mark.clause("decided-foreign-client-harms-nothing", "6749-10.4-binding-verified")
@pytest.mark.parametrize("generation", [1, 2, 3, 9])
async def test_other_client_cannot_spend_or_end_the_family(sessions: Sessions, clock: Clock, generation: int) -> None:
    """The client is checked first, also for a generation whose replay would count as theft."""
    session = await sessions.start()
    await sessions.refresh(session, 2)
    clock.advance(400)

    assert await refused_and_untouched(sessions, session, generation, client_id="web-shop") == "foreign"


@pytest.mark.clause("decided-refresh-without-the-secret")
async def test_a_family_made_with_a_secret_is_refreshed_with_one(sessions: Sessions) -> None:
    session = await sessions.start(secret_used=True)

    assert await refused_and_untouched(sessions, session, 1, secret_used=False) == "without_secret"
    assert (await sessions.spend(session, 1)).verdict == "rotated"


async def test_family_made_without_a_secret_accepts_one(sessions: Sessions) -> None:
    session = await sessions.start()

    assert (await sessions.spend(session, 1, secret_used=True)).verdict == "rotated"
    assert not sessions.parsed(session).secret_used


async def test_scope_lost_by_the_client_is_refused_unspent(sessions: Sessions) -> None:
    session = await sessions.start(scope=BOTH_ROLES)

    assert await refused_and_untouched(sessions, session, 1, allowed_scope=ENDUSER) == "withdrawn"
    assert await refused_and_untouched(sessions, session, 1, allowed_scope="") == "withdrawn"


async def test_a_word_of_the_scope_is_compared_as_a_whole(sessions: Sessions) -> None:
    """`role:end` is not a part of `role:enduser`, nor the other way round."""
    session = await sessions.start()

    assert await refused_and_untouched(sessions, session, 1, allowed_scope="realm:main role:enduserx") == "withdrawn"
    assert await refused_and_untouched(sessions, session, 1, wanted_scope="realm:main role:end") == "beyond"


@pytest.mark.clause("6749-6-scope-not-wider")
async def test_scope_beyond_the_grant_is_refused_unspent(sessions: Sessions) -> None:
    session = await sessions.start()

    assert await refused_and_untouched(sessions, session, 1, wanted_scope=BOTH_ROLES) == "beyond"


@pytest.mark.clause("decided-narrowing-keeps-the-grant", "6749-6-new-token-same-scope")
@pytest.mark.parametrize("wanted", ["role:organisation", "realm:main role:organisation"])
async def test_narrower_scope_leaves_the_family_scope(sessions: Sessions, wanted: str) -> None:
    """The realm is always part of the granted scope."""
    session = await sessions.start(scope=BOTH_ROLES)
    outcome = await sessions.spend(session, 1, wanted_scope=wanted)
    grant = await sessions.worker.access_tokens.find(session.access_tokens[-1])

    assert isinstance(outcome, Spent)
    assert grant is not None
    assert "realm:main role:organisation" == outcome.scope == grant.scope
    assert sessions.parsed(session).scope == BOTH_ROLES
    assert (await sessions.refresh(session)).scope == BOTH_ROLES


@pytest.mark.clause("decided-generation-ahead-of-redis")
async def test_generation_ahead_of_redis_continues(sessions: Sessions, clock: Clock) -> None:
    """A failover lost three spends. Another tab with one of the lost generations is no thief."""
    session = await sessions.start()
    sessions.store.copy(session.key, f"kept:{session.key}")
    await sessions.refresh(session, 4)
    sessions.store.copy(f"kept:{session.key}", session.key, replace=True)
    clock.advance(400)
    outcome = await sessions.spend(session, 4)

    assert Spent("recovered", 5, 600_000, ENDUSER, ALICE.username, session.identity.subject, 0, 0) == outcome
    assert [(await sessions.spend(session, generation)).verdict for generation in (1, 2, 3, 4)] == ["repeated"] * 4
    assert (await sessions.spend(session, 5)).verdict == "rotated"
    clock.advance(301)
    assert (await sessions.spend(session, 2)).verdict == "replayed"


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
    sessions.store.append(session.key, "\na further line\n\nand more")
    await sessions.refresh(session, 2)
    await sessions.spend(session, 1)

    assert str(sessions.record(session)).endswith("\na further line\n\nand more")
    assert sessions.parsed(session).head == 3
