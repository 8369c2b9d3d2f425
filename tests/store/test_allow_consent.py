"""A consent answered with "allow": one code, written for one client, and found again."""

import pytest

from tests.cast import PHONE_CALLBACK
from tests.conftest import Clock
from tests.store.pages import Pages
from tests.store.sessions import Sessions


@pytest.mark.clause("6749-4.1.2-code-bound", "7636-4.4-challenge-bound-to-code")
@pytest.mark.parametrize("challenge", [None, "c" * 43])
async def test_a_code_is_found_with_all_that_it_was_issued_for(
    sessions: Sessions, pages: Pages, challenge: str | None
) -> None:
    page = await pages.open(redirect_uri=PHONE_CALLBACK + "?keep=%0A", code_challenge=challenge)

    assert await pages.allow(page) == "issued"
    assert page.code == await sessions.codes.find(page.code_name)


@pytest.mark.clause("decided-code-ttl", "6749-4.1.2-code-expires", "decided-i6-everything-expires")
async def test_a_code_and_its_place_in_the_index_end_by_themselves(
    sessions: Sessions, pages: Pages, clock: Clock
) -> None:
    kept = set(sessions.store.scan_iter())
    page = await pages.open()
    await pages.allow(page)
    assert page.members[2] in pages.index()
    assert pages.index()[page.members[2]] == int(pages.code_record(page)["expires_ms"])
    clock.advance(59)
    assert await sessions.codes.find(page.code_name) is not None
    clock.advance(1.5)

    assert await sessions.codes.find(page.code_name) is None
    clock.advance(3_600)
    assert kept == set(sessions.store.scan_iter())


async def test_a_code_does_not_shorten_the_index_of_a_session(sessions: Sessions, pages: Pages) -> None:
    session = await sessions.start()
    name = await sessions.issue_code()

    assert sessions.pttl(pages.index_key()) > 2_591_000_000
    assert {session.member, f"code:{name.digest}"} <= set(pages.index())


@pytest.mark.parametrize("ahead_ms", [0, 5_000])
async def test_a_code_issued_after_a_mark_is_younger_than_it(sessions: Sessions, ahead_ms: int) -> None:
    earlier = await sessions.start()
    marked_ms = sessions.now_ms() + 1_000 + ahead_ms
    sessions.set_mark(earlier, marked_ms)
    _, name = await sessions.run_at(marked_ms - ahead_ms, sessions.issue_code)
    outcome, session = await sessions.redeem(name)

    assert outcome == 600_000
    assert marked_ms + 1 <= int(sessions.record(session)["created_ms"])
