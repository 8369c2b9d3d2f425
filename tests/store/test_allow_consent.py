"""A consent answered with "allow": it leads to one code for one client, and a second answer finds that code."""

import msgspec
import pytest

from tests.conftest import Clock
from tests.store.pages import Pages
from tests.store.sessions import Sessions


@pytest.mark.parametrize("ahead_ms", [0, 5_000])
async def test_a_code_issued_after_a_mark_is_younger_than_it(sessions: Sessions, ahead_ms: int) -> None:
    earlier = await sessions.start()
    marked_ms = sessions.now_ms() + 1_000 + ahead_ms
    sessions.set_mark(earlier, marked_ms)
    name = await sessions.run_at(marked_ms - ahead_ms, sessions.issue_code)
    outcome, session = await sessions.redeem(name)

    assert outcome == 600_000
    assert marked_ms + 1 == sessions.parsed(session).created_ms


async def test_code_is_never_older_than_its_consent(sessions: Sessions, pages: Pages, clock: Clock) -> None:
    """A mark between the two would not cover a code with an earlier time."""
    page = await pages.open()
    clock.offset_ms -= 30_000
    await pages.allow(page)

    assert pages.code_record(page)["created_ms"] == pages.consent_record(page)["created_ms"]


@pytest.mark.parametrize("answered", [False, True])
async def test_request_expires_by_its_record(sessions: Sessions, pages: Pages, clock: Clock, answered: bool) -> None:
    sessions.set_lifetimes(code_ms=3_600_000)
    page = await pages.open()
    if answered:
        await pages.allow(page)
    before = pages.dump_all()
    clock.offset_ms += 1_800_000

    assert await pages.allow(page) == "unknown"
    assert pages.dump_all() == before
    clock.offset_ms -= 2_000
    assert await pages.allow(page) == ("repeated" if answered else "issued")


@pytest.mark.clause("6749-10.12-csrf")
async def test_an_answer_is_bound_to_its_browser_session(pages: Pages) -> None:
    page, other = await pages.open(), await pages.sign_in()
    before = pages.dump_all()

    assert [await pages.allow(page, browser=other), await pages.deny(page, browser=other)] == ["signed_out"] * 2
    assert pages.dump_all() == before


async def test_the_record_decides_when_a_browser_session_is_over(pages: Pages, clock: Clock) -> None:
    """Consents normally end before their browser session. Here one is given a longer life."""
    page = await pages.open(browser=await pages.sign_in(lifetime_ms=90_000))
    pages.change_consent(page, expires_ms="9999999999999")
    clock.offset_ms += 90_000

    assert await pages.allow(page) == "signed_out"
    clock.offset_ms -= 2_000
    assert await pages.allow(page) == "issued"


@pytest.mark.clause("decided-i7-revocation-is-final")
@pytest.mark.parametrize(("later_ms", "answer"), [(0, "unknown"), (1, "unknown"), (-1, "issued")])
async def test_mark_covers_earlier_consents(sessions: Sessions, pages: Pages, later_ms: int, answer: str) -> None:
    page = await pages.open()
    pages.set_mark(int(pages.consent_record(page)["created_ms"]) + later_ms)
    pages.change_browser(page, created_ms="9999999999999")  # the session alone would still do
    before = pages.dump_all()

    assert await pages.allow(page) == answer
    assert sessions.code_is_there(page.code_name) == (answer == "issued")
    assert (pages.dump_all() == before) == (answer == "unknown")


@pytest.mark.clause("decided-i7-revocation-is-final")
async def test_a_mark_covers_the_browser_session_by_itself(sessions: Sessions, pages: Pages) -> None:
    page = await pages.open()
    pages.change_consent(page, created_ms="9999999999999")
    pages.set_mark(sessions.now_ms())

    assert await pages.allow(page) == "signed_out"
    assert not sessions.code_is_there(page.code_name)


@pytest.mark.parametrize("changes", [{"disabled": True}, {"password_hash": "another"}, {"roles": ()}])
async def test_changed_user_gets_no_code(sessions: Sessions, pages: Pages, changes: dict[str, object]) -> None:
    page = await pages.open()
    await sessions.worker.registry.users.put(msgspec.structs.replace(page.user, **changes))
    before = pages.dump_all()

    assert await pages.allow(page) == "changed"
    assert pages.dump_all() == before


@pytest.mark.clause("decided-newer-record")
@pytest.mark.parametrize("allows", [True, False])
async def test_lines_of_a_newer_version_outlive_the_answer(pages: Pages, allows: bool) -> None:
    page = await pages.open()
    pages.store.append(page.consent_key, "\na further line")

    assert await (pages.allow(page) if allows else pages.deny(page)) in ("issued", "denied")
    assert str(pages.store.get(page.consent_key)).endswith("\na further line")
