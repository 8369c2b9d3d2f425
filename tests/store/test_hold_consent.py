"""An authorization request held for the user of a browser session, until it is answered or expires."""

import pytest

from tests.conftest import Clock
from tests.store.pages import CONSENT_MS, Pages
from tests.store.sessions import Sessions
from tests.support.codes import consent_request_for


@pytest.mark.parametrize("challenge", [None, "c" * 43])
async def test_held_request_is_bound_to_its_browser(sessions: Sessions, pages: Pages, challenge: str | None) -> None:
    before_ms = sessions.now_ms()
    page = await pages.open(code_challenge=challenge, redirect_uri="https://app.example/?a=%0A\nb", client_id="ä\n")
    found = await sessions.consents.find(page.consent)
    record = pages.consent_record(page)

    assert found is not None
    assert found.consent_request == consent_request_for(page.code)
    assert (found.login, found.is_answered) == (page.browser.digest, False)
    assert (record["subject"], record["answer"]) == (page.user.identity.subject, "")
    assert before_ms <= int(record["created_ms"]) <= sessions.now_ms()
    assert int(record["expires_ms"]) - int(record["created_ms"]) == CONSENT_MS
    assert pages.index() == {
        page.members[0]: int(pages.browser_record(page.browser)["expires_ms"]),
        page.members[1]: int(record["expires_ms"]),
    }


@pytest.mark.clause("decided-i6-everything-expires", "decided-i6-pending-login-expires")
async def test_held_request_and_its_index_entry_expire(sessions: Sessions, pages: Pages, clock: Clock) -> None:
    kept = set(sessions.store.scan_iter())
    page = await pages.open()
    clock.advance(1_799)
    assert await sessions.consents.find(page.consent) is not None
    clock.advance(1.5)
    assert await sessions.consents.find(page.consent) is None
    assert await pages.allow(page) == await pages.deny(page) == "unknown"
    await pages.open(browser=page.browser)
    assert page.members[1] not in pages.index()
    clock.advance(3_600)

    assert kept == set(sessions.store.scan_iter())


async def test_a_held_request_ends_with_its_browser_session(sessions: Sessions, pages: Pages) -> None:
    page = await pages.open(browser=await pages.sign_in(lifetime_ms=90_000))

    assert pages.consent_record(page)["expires_ms"] == pages.browser_record(page.browser)["expires_ms"]
    assert sessions.elapsed.leaves(sessions.pttl(page.consent_key), 90_000)


async def test_without_a_browser_session_nothing_is_held(pages: Pages) -> None:
    page = await pages.make()
    await pages.browser_sessions.end(page.browser)
    before = pages.dump_all()

    assert not await pages.hold(page)
    assert pages.dump_all() == before


@pytest.mark.clause("decided-i7-revocation-is-final")
@pytest.mark.parametrize(("later_ms", "is_held"), [(0, False), (1, False), (-1, True)])
async def test_browser_session_before_a_mark_holds_no_consent(pages: Pages, later_ms: int, is_held: bool) -> None:
    """The session is dated at the millisecond of the mark, before it, and after it."""
    page = await pages.make()
    pages.set_mark(int(pages.browser_record(page.browser)["created_ms"]) + later_ms)
    before = pages.dump_all()

    assert await pages.hold(page) == is_held
    assert (pages.dump_all() == before) != is_held


async def test_consent_right_after_a_mark_is_younger(sessions: Sessions, pages: Pages) -> None:
    """The same holds if the clock went backwards since the mark."""
    marked_ms = sessions.now_ms() + 5_000
    pages.set_mark(marked_ms)
    page = await pages.open()

    assert int(pages.consent_record(page)["created_ms"]) == marked_ms + 1
    assert await pages.allow(page) == "issued"
