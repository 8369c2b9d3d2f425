"""A user's families as their page of sessions lists them."""

import pytest

from service.store.records import FamilyRecord
from tests.conftest import Clock
from tests.store.pages import Pages
from tests.store.sessions import ENDUSER, Session, Sessions
from tests.support.clients_and_users import ALICE, BOB


async def find(sessions: Sessions, most: int = 100) -> tuple[list[str], bool]:
    """Return the digests in the order of the page, and whether there are more."""
    user = await sessions.find_user(ALICE)
    found, more = await sessions.families.list_of_user(user.identity, most)
    return [digest for digest, _ in found], more


def digests(*started: Session) -> list[str]:
    return [session.first.family_digest for session in started]


async def test_a_family_is_shown_with_its_client_its_scope_and_its_times(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start(client_id="web-shop", secret_used=True)
    user = await sessions.find_user()
    found, more = await sessions.families.list_of_user(user.identity, 100)
    record = sessions.parsed(session)
    expected = record._replace(
        head=1,
        client_id="web-shop",
        subject=user.identity.subject,
        username=ALICE.username,
        scope=ENDUSER,
        expires_ms=record.created_ms + sessions.lifetimes.refresh_token_ms,
    )

    assert (found, more) == ([(session.first.family_digest, expected)], False)
    assert expected.used_ms == record.created_ms
    assert await sessions.families.find(user.identity.shard, session.first.family_digest) == expected


async def test_a_refresh_is_a_use_and_a_replay_is_none(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()

    async def look() -> FamilyRecord:
        """Return the family without the fields that a replay may change."""
        family = await sessions.families.find(session.identity.shard, session.first.family_digest)
        assert family is not None
        return family._replace(access_until_ms=0, replayed=(), streak="", replays="")

    for _ in range(3):
        clock.advance(400)
        before_ms = sessions.now_ms()
        await sessions.refresh(session)
        refreshed = await look()
        assert before_ms <= refreshed.used_ms <= sessions.now_ms()
        assert refreshed.created_ms == sessions.parsed(session).created_ms
        clock.advance(100)
        assert (await sessions.spend(session, sessions.parsed(session).head - 1)).verdict == "repeated"
        assert await look() == refreshed


async def test_the_last_used_comes_first(sessions: Sessions, clock: Clock) -> None:
    one, two, three = [await started_after(sessions, clock, 10) for _ in range(3)]
    assert await find(sessions) == (digests(three, two, one), False)
    clock.advance(10)
    await sessions.refresh(two)

    assert await find(sessions) == (digests(two, three, one), False)


async def test_no_more_are_shown_than_asked_for_and_these_are_the_last_used(sessions: Sessions, clock: Clock) -> None:
    started = [await started_after(sessions, clock, 10) for _ in range(4)]

    assert await find(sessions, 3) == (digests(*reversed(started[1:])), True)
    assert await find(sessions, 4) == (digests(*reversed(started)), False)


async def started_after(sessions: Sessions, clock: Clock, seconds: float) -> Session:
    clock.advance(seconds)
    return await sessions.start()


async def test_browsers_consents_and_codes_of_the_user_are_none_and_hide_none(sessions: Sessions, pages: Pages) -> None:
    """The result does not depend on their number and their longer lives."""
    sessions.set_lifetimes(refresh_token_ms=600_000)
    started = [await sessions.start() for _ in range(4)]
    for _ in range(3):
        page = await pages.open(browser=await pages.sign_in(lifetime_ms=2_592_000_000))
        await pages.open(browser=page.browser)
        await pages.allow(page)

    found, more = await find(sessions, 2)
    assert set(found) <= set(digests(*started))
    assert (len(found), more) == (2, True)
    assert set((await find(sessions, 4))[0]) == set(digests(*started))
    assert (await find(sessions, 4))[1] is False


async def test_ended_and_expired_families_and_those_of_others_are_not_shown(sessions: Sessions, clock: Clock) -> None:
    sessions.set_lifetimes(refresh_token_ms=60_000)
    await sessions.start()
    sessions.set_lifetimes()
    ended, live = await sessions.start(), await sessions.start()
    await sessions.start(BOB)
    shard, digest = ended.identity.shard, ended.first.family_digest
    await sessions.families.end(shard, digest, client_id="phone-app", reason="revoked")
    clock.advance(61)

    assert await find(sessions) == (digests(live), False)


async def test_a_family_that_can_be_refreshed_no_more_is_shown_while_its_access_tokens_live(
    sessions: Sessions, clock: Clock
) -> None:
    """The user may want to end them."""
    sessions.set_lifetimes(refresh_token_ms=600_000)
    session = await sessions.start()
    sessions.set_lifetimes(refresh_token_ms=20_000)
    await sessions.refresh(session)
    clock.advance(30)
    assert (await sessions.spend(session, 2)).verdict == "unknown"
    assert await find(sessions) == (digests(session), False)
    clock.advance(571)

    assert await find(sessions) == ([], False)


@pytest.mark.parametrize("step", [1, 2, 3, 7])
async def test_an_index_of_any_length_is_read_to_its_end(sessions: Sessions, pages: Pages, step: int) -> None:
    sessions.families.members_at_once = step
    started = [await sessions.start() for _ in range(3)]
    for _ in range(2):
        await pages.sign_in(lifetime_ms=2_592_000_000)
        await pages.sign_in(lifetime_ms=60_000)

    found, more = await find(sessions)
    assert (set(found), more) == (set(digests(*started)), False)
    assert len((await find(sessions, 2))[0]) == 2
    assert (await find(sessions, 2))[1] is True


@pytest.mark.clause("decided-i7-revocation-is-final")
async def test_what_a_mark_covers_is_not_shown_and_what_comes_after_it_is(sessions: Sessions, pages: Pages) -> None:
    earlier = await sessions.start()
    pages.set_mark(sessions.parsed(earlier).created_ms)
    later = await sessions.start()

    assert await find(sessions) == (digests(later), False)
    # A session that begins within a millisecond of a mark is dated a millisecond after it, ahead of the clock.
    pages.set_mark(sessions.parsed(later).created_ms)
    assert await find(sessions) == ([], False)


async def test_a_user_without_anything_has_no_sessions(sessions: Sessions) -> None:
    assert await find(sessions) == ([], False)


async def test_an_unknown_family_is_none(sessions: Sessions) -> None:
    user = await sessions.find_user()

    assert await sessions.families.find(user.identity.shard, "unknown") is None
    assert await sessions.families.find(user.identity.shard, "") is None
