"""A bounded step of the deletion by revokeAll, which deletes the kept family last."""

import pytest

from service.protocol.user import identify_user
from service.store.keys import code_key, ended_key, index_key, mark_key, revoked_key
from tests.conftest import Clock
from tests.store.pages import Pages
from tests.store.sessions import Session, Sessions
from tests.support.clients_and_users import ALICE

IDENTITY = identify_user("main", ALICE.username)
INDEX, REVOKED, MARK = (key(IDENTITY.shard, IDENTITY.digest) for key in (index_key, revoked_key, mark_key))


async def delete(
    sessions: Sessions, most_keys: int, kept: Session | None = None, *, marked_ms: int = 0, until_ms: int = 0
) -> str:
    """Run one step. Unless the step is of the mark `marked_ms`, a mark is set first: for `until_ms`, or for now."""
    is_marked = marked_ms or not sessions.store.set(MARK, until_ms or sessions.now_ms(), px=10_000_000, nx=True)
    if until_ms and not is_marked:
        sessions.store.zadd(REVOKED, {"limit:": -1})
    return str((await sessions.run_revoke_all(IDENTITY, most_keys, kept=kept, marked_ms=marked_ms or 1))[0])


async def set_aside(sessions: Sessions, count: int) -> list[Session]:
    started = [await sessions.start() for _ in range(count)]
    sessions.store.rename(INDEX, REVOKED)
    return started


@pytest.mark.clause("decided-revoke-all-covers-logins")
async def test_step_deletes_records_of_all_kinds(sessions: Sessions, pages: Pages) -> None:
    before = set(sessions.store.scan_iter())
    code = await sessions.issue_code()
    browser = await pages.sign_in(lifetime_ms=2_592_000_000)
    for _ in range(2):
        page = await pages.open(browser=browser)
    await pages.allow(page)
    (session,) = await set_aside(sessions, 1)

    assert await delete(sessions, 500) == "finished"
    assert sessions.live(session) == [False]
    assert not sessions.code_is_there(code)
    left = set(sessions.store.scan_iter()) - before
    assert {ended_key(IDENTITY.shard, session.first.family_digest), MARK} == left


@pytest.mark.clause("decided-revoke-all-covers-logins", "decided-revoke-all-many-sessions")
async def test_step_bound_includes_browser_sessions_and_consents(sessions: Sessions, pages: Pages) -> None:
    before = set(sessions.store.scan_iter())
    for _ in range(4):
        await pages.open()
    sessions.store.rename(INDEX, REVOKED)

    assert [await delete(sessions, 3) for _ in range(3)] == ["more", "more", "finished"]
    assert {*before, MARK} == set(sessions.store.scan_iter())


@pytest.mark.clause("decided-revoke-all-many-sessions")
async def test_a_step_stops_at_its_bound_and_says_that_there_is_more(sessions: Sessions) -> None:
    """A family costs two of the bound: itself and its access token."""
    started = await set_aside(sessions, 10)
    verdicts = [await delete(sessions, 4) for _ in range(5)]

    assert verdicts == ["more"] * 4 + ["finished"]
    assert not any(sessions.live(session)[0] for session in started)


async def test_each_step_makes_progress_with_any_bound(sessions: Sessions) -> None:
    (session,) = await set_aside(sessions, 1)
    await sessions.refresh(session, 20)

    assert await delete(sessions, 1) == "finished"
    assert sessions.live(session) == [False] * 21


@pytest.mark.clause("decided-revoke-all-presented-token-last")
@pytest.mark.parametrize("position", [0, 4, 9])
async def test_kept_member_is_deleted_last(sessions: Sessions, position: int) -> None:
    started = await set_aside(sessions, 10)
    kept = started[position]
    while await delete(sessions, 3, kept) == "more":
        assert sessions.live(kept) == [True]

    assert [session is kept for session in started] == [sessions.live(session)[0] for session in started]
    assert [kept.member] == sessions.store.zrange(REVOKED, 0, -1)
    assert await delete(sessions, 3) == "finished"
    assert sessions.live(kept) == [False]


@pytest.mark.clause("decided-revoke-all-many-sessions", "decided-revoke-all-issued-before")
async def test_smallest_step_passes_kept_members(sessions: Sessions, clock: Clock) -> None:
    """The key begins with `limit:` and the kept member, which expires first."""
    kept = await sessions.start()
    clock.advance(10)
    (other,) = await set_aside(sessions, 1)

    assert await delete(sessions, 1, kept, until_ms=sessions.now_ms()) == "finished"
    assert (sessions.live(kept), sessions.live(other)) == ([True], [False])
    assert set(sessions.store.zrange(REVOKED, 0, -1)) == {"limit:", kept.member}


async def test_missing_records_are_ignored(sessions: Sessions) -> None:
    (session,) = await set_aside(sessions, 1)
    sessions.store.delete(session.key)

    assert await delete(sessions, 500) == "finished"
    assert await delete(sessions, 500) == "finished"


async def set_aside_two_ages(sessions: Sessions, pages: Pages, clock: Clock) -> tuple[list[str], list[str], int]:
    """Set aside two of each kind. Returns the keys of the older, those of the younger, and a time between them."""
    names: list[list[str]] = []
    for _ in range(2):
        clock.advance(10)
        page, session, code = await pages.open(), await sessions.start(), await sessions.issue_code()
        names.append([session.key, code_key(IDENTITY.shard, code.digest), page.browser_key, page.consent_key])
    sessions.store.zunionstore(REVOKED, [INDEX])
    return names[0], names[1], sessions.now_ms() - 5_000


@pytest.mark.clause("decided-revoke-all-issued-before")
@pytest.mark.parametrize("most_keys", [1, 2, 500])
async def test_younger_sessions_stay_in_the_index(
    sessions: Sessions, pages: Pages, clock: Clock, most_keys: int
) -> None:
    older, younger, until_ms = await set_aside_two_ages(sessions, pages, clock)
    ends: dict[str, float] = dict(sessions.store.zrange(REVOKED, 0, -1, withscores=True))  # type: ignore[arg-type]
    while await delete(sessions, most_keys, until_ms=until_ms) == "more":
        pass

    assert sessions.store.exists(*older) == 0
    assert sessions.store.exists(*younger) == len(younger)
    assert not sessions.store.exists(REVOKED)
    back: dict[str, float] = dict(sessions.store.zrange(INDEX, 0, -1, withscores=True))  # type: ignore[arg-type]
    members = {name.replace(f":{{{IDENTITY.shard}}}", "") for name in younger}
    assert members <= set(back)
    assert back.items() <= ends.items()
    ttl_ms = sessions.pttl(INDEX)
    assert sessions.elapsed.leaves(max(back.values()) - sessions.now_ms(), ttl_ms)


@pytest.mark.clause("decided-i7-revocation-is-final", "decided-revoke-all-covers")
async def test_revocation_completes_after_the_clock_was_set_back(
    sessions: Sessions, pages: Pages, clock: Clock
) -> None:
    page, session = await pages.open(), await sessions.start()
    clock.offset_ms -= 1_000_000
    sessions.store.rename(INDEX, REVOKED)

    assert await delete(sessions, 500) == "finished"
    assert sessions.live(session) == [False]
    assert sessions.store.exists(page.browser_key, page.consent_key, INDEX) == 0


@pytest.mark.clause("decided-revoke-all-issued-before", "decided-i7-revocation-is-final")
async def test_records_set_aside_for_a_later_mark_are_deleted(sessions: Sessions) -> None:
    """An earlier revokeAll was cut short. One for an earlier time also deletes what that one covered."""
    (session,) = await set_aside(sessions, 1)
    created_ms = sessions.parsed(session).created_ms
    sessions.set_mark(session, created_ms)
    await delete(sessions, 500, until_ms=created_ms - 1_000)

    assert sessions.live(session) == [False]


@pytest.mark.clause("decided-revoke-all-survives-lost-mark")
@pytest.mark.parametrize("earlier_ms", [0, 1])
async def test_without_its_mark_a_step_deletes_nothing(sessions: Sessions, earlier_ms: int) -> None:
    """There is no mark, or an earlier one."""
    (session,) = await set_aside(sessions, 1)
    if earlier_ms:
        sessions.set_mark(session, sessions.now_ms() - 1)

    assert await delete(sessions, 500, marked_ms=sessions.now_ms() + 1_000) == "lost"
    assert sessions.live(session) == [True]
    assert sessions.store.zrange(REVOKED, 0, -1) == [session.member]
