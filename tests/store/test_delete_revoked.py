"""One bounded step of a deletion: as much as it may, the one to keep last."""

import pytest

from service.protocol.user import identify_user
from service.store.keys import index_key, revoked_key
from service.store.scripts import load_script
from tests.cast import ALICE
from tests.store.pages import Pages
from tests.store.sessions import Session, Sessions

IDENTITY = identify_user("main", ALICE.username)
INDEX, REVOKED = (key(IDENTITY.shard, IDENTITY.subject) for key in (index_key, revoked_key))


async def delete(sessions: Sessions, most_keys: int, kept: Session | None = None) -> str:
    arguments: list[str | int] = [most_keys, kept.member if kept else ""]
    return str((await sessions.parts.connection.run(load_script("delete_revoked"), [REVOKED], arguments))[0])


async def set_aside(sessions: Sessions, count: int) -> list[Session]:
    started = [await sessions.start() for _ in range(count)]
    sessions.store.rename(INDEX, REVOKED)
    return started


@pytest.mark.clause("decided-revoke-all-covers-logins")
async def test_a_step_deletes_families_access_tokens_codes_browser_sessions_and_consents(
    sessions: Sessions, pages: Pages
) -> None:
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
    assert before == set(sessions.store.scan_iter())


@pytest.mark.clause("decided-revoke-all-covers-logins", "decided-revoke-all-many-sessions")
async def test_browser_sessions_and_consents_count_toward_the_bound_of_a_step(sessions: Sessions, pages: Pages) -> None:
    before = set(sessions.store.scan_iter())
    for _ in range(4):
        await pages.open()
    sessions.store.rename(INDEX, REVOKED)

    assert [await delete(sessions, 3) for _ in range(3)] == ["more", "more", "finished"]
    assert before == set(sessions.store.scan_iter())


@pytest.mark.clause("decided-revoke-all-many-sessions")
async def test_a_step_stops_at_its_bound_and_says_that_there_is_more(sessions: Sessions) -> None:
    """A family costs two here: itself and its access token."""
    started = await set_aside(sessions, 10)
    verdicts = [await delete(sessions, 4) for _ in range(5)]

    assert verdicts == ["more"] * 4 + ["finished"]
    assert not any(sessions.live(session)[0] for session in started)


async def test_each_step_makes_progress_whatever_its_bound(sessions: Sessions) -> None:
    (session,) = await set_aside(sessions, 1)
    await sessions.refresh(session, 20)

    assert await delete(sessions, 1) == "finished"
    assert sessions.live(session) == [False] * 21


@pytest.mark.clause("decided-revoke-all-presented-token-last")
@pytest.mark.parametrize("position", [0, 4, 9])
async def test_the_one_to_keep_stays_until_everything_else_is_gone(sessions: Sessions, position: int) -> None:
    started = await set_aside(sessions, 10)
    kept = started[position]
    while await delete(sessions, 3, kept) == "more":
        assert sessions.live(kept) == [True]

    assert [session is kept for session in started] == [sessions.live(session)[0] for session in started]
    assert [kept.member] == sessions.store.zrange(REVOKED, 0, -1)
    assert await delete(sessions, 3) == "finished"
    assert sessions.live(kept) == [False]


async def test_what_came_later_is_not_touched(sessions: Sessions) -> None:
    await set_aside(sessions, 2)
    later = await sessions.start()
    await delete(sessions, 500)

    assert sessions.live(later) == [True]
    assert {later.member} == set(sessions.index(later))


async def test_what_is_gone_already_is_no_fault(sessions: Sessions) -> None:
    (session,) = await set_aside(sessions, 1)
    sessions.store.delete(session.key)

    assert await delete(sessions, 500) == "finished"
    assert await delete(sessions, 500) == "finished"
