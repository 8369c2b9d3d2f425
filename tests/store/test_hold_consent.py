"""An authorization request held for the user of a browser session, until it is answered or expires."""

import pytest

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
    assert (found.login, found.answer) == (page.browser.digest, "")
    assert (record["user_digest"], record["answer"]) == (page.user.identity.digest, "")
    assert before_ms <= int(record["created_ms"]) <= sessions.now_ms()
    assert int(record["expires_ms"]) - int(record["created_ms"]) == CONSENT_MS
    assert pages.index() == {
        page.members[0]: int(pages.browser_record(page.browser)["expires_ms"]),
        page.members[1]: int(record["expires_ms"]),
    }


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
