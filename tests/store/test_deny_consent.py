"""A consent answered with "deny", which leads to no code any more."""

import msgspec
import pytest

from tests.conftest import Clock
from tests.store.pages import Pages
from tests.store.sessions import Sessions


async def test_denied_request_is_recorded(sessions: Sessions, pages: Pages, clock: Clock) -> None:
    page = await pages.open()
    before, held = pages.dump_all(), pages.consent_record(page)
    clock.advance(60)

    assert await pages.deny(page) == "denied"
    assert pages.consent_record(page) == held | {"answer": "denied"}
    assert {key: value for key, value in pages.dump_all().items() if key != page.consent_key} == {
        key: value for key, value in before.items() if key != page.consent_key
    }
    assert sessions.pttl(page.consent_key) <= 1_740_000
    found = await sessions.consents.find(page.consent)
    assert found is not None
    assert found.is_answered


async def test_to_deny_twice_is_the_same(pages: Pages) -> None:
    page = await pages.open()
    await pages.deny(page)
    after = pages.dump_all()

    assert await pages.deny(page) == "repeated"
    assert pages.dump_all() == after


async def test_consent_decision_is_final(sessions: Sessions, pages: Pages) -> None:
    denied, allowed = await pages.open(), await pages.open()
    await pages.deny(denied)
    await pages.allow(allowed)
    after = pages.dump_all()

    assert [await pages.allow(denied), await pages.deny(allowed)] == ["answered", "answered"]
    assert pages.dump_all() == after
    assert not sessions.code_is_there(denied.code_name)
    assert (await sessions.redeem(allowed.code_name))[0] == 600_000
    assert await pages.deny(allowed) == "answered"


@pytest.mark.clause("6749-10.12-csrf")
@pytest.mark.parametrize("answered", [False, True])
async def test_denial_is_bound_to_its_browser_and_session(pages: Pages, answered: bool) -> None:
    page = await pages.open()
    if answered:
        await pages.deny(page)
    other = await pages.sign_in()
    before = pages.dump_all()

    assert await pages.deny(page, browser=other) == "signed_out"
    assert pages.dump_all() == before
    await pages.browser_sessions.end(page.browser)
    assert await pages.deny(page) == "signed_out"


@pytest.mark.clause("decided-i7-revocation-is-final")
@pytest.mark.parametrize(("later_ms", "answer"), [(0, "unknown"), (1, "unknown"), (-1, "denied")])
async def test_mark_covers_earlier_consents(pages: Pages, later_ms: int, answer: str) -> None:
    page = await pages.open()
    pages.set_mark(int(pages.consent_record(page)["created_ms"]) + later_ms)
    pages.change_browser(page, created_ms="9999999999999")  # the session alone would still do

    assert await pages.deny(page) == answer


async def test_changed_user_may_still_deny(sessions: Sessions, pages: Pages) -> None:
    """Denying needs no right."""
    page = await pages.open()
    await sessions.worker.registry.users.put(msgspec.structs.replace(page.user, roles=()))

    assert await pages.deny(page) == "denied"
