"""A consent answered with "allow": it leads to one code for one client, and a second answer finds that code."""

import msgspec
import pytest

from service.protocol.authorization_code import AuthorizationCode, RedeemedCode
from tests.conftest import Clock
from tests.store.pages import Pages
from tests.store.sessions import KEPT_MS, Sessions
from tests.support.clients_and_users import PHONE_CALLBACK


@pytest.mark.clause("6749-4.1.2-code-bound", "7636-4.4-challenge-bound-to-code")
@pytest.mark.parametrize("challenge", [None, "c" * 43])
async def test_a_code_is_found_with_all_that_it_was_issued_for(
    sessions: Sessions, pages: Pages, challenge: str | None
) -> None:
    page = await pages.open(redirect_uri=PHONE_CALLBACK + "?keep=%0A", code_challenge=challenge)

    assert await pages.allow(page) == "issued"
    code = await sessions.codes.find(page.code_name)
    assert isinstance(code, AuthorizationCode)
    assert page.code == msgspec.structs.replace(code, created_ms=0, expires_ms=0, subject="")


@pytest.mark.clause("decided-code-ttl", "6749-4.1.2-code-expires", "decided-i6-everything-expires")
async def test_a_code_and_its_place_in_the_index_end_by_themselves(
    sessions: Sessions, pages: Pages, clock: Clock
) -> None:
    kept = set(sessions.store.scan_iter())
    page = await pages.open()
    await pages.allow(page)
    clock.advance(59)
    assert await sessions.codes.find(page.code_name) is not None
    clock.advance(1.5)
    assert await sessions.codes.find(page.code_name) is None
    await pages.open(browser=page.browser)
    assert page.members[2] not in pages.index()
    clock.advance(3_600)

    assert kept == set(sessions.store.scan_iter())


async def test_a_code_does_not_shorten_the_index_of_a_session(sessions: Sessions, pages: Pages) -> None:
    session = await sessions.start()
    name = await sessions.issue_code()

    assert sessions.elapsed.leaves(sessions.pttl(pages.index_key()), KEPT_MS)
    assert {session.member, f"code:{name.digest}"} <= set(pages.index())


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


async def test_second_click_returns_the_same_code(sessions: Sessions, pages: Pages, clock: Clock) -> None:
    page = await pages.open()
    await pages.allow(page)
    after = pages.dump_all()
    clock.advance(30)

    assert await pages.allow(page) == "repeated"
    assert pages.dump_all() == after
    assert sessions.pttl(page.code_key) <= 30_000
    assert (await sessions.redeem(page.code_name))[0] == 600_000


@pytest.mark.clause("6749-4.1.2-second-use-denied")
async def test_click_after_the_exchange_makes_no_new_code(sessions: Sessions, pages: Pages) -> None:
    page = await pages.open()
    await pages.allow(page)
    _, session = await sessions.redeem(page.code_name)
    after = pages.dump_all()

    assert await pages.allow(page) == "answered"
    assert pages.dump_all() == after
    assert await sessions.codes.find(page.code_name) == RedeemedCode(
        client_id="phone-app", code_challenge=None, family_digest=session.first.family_digest
    )


async def test_a_click_after_the_code_has_expired_is_answered(sessions: Sessions, pages: Pages, clock: Clock) -> None:
    page = await pages.open()
    await pages.allow(page)
    clock.advance(61)

    assert await pages.allow(page) == "answered"
    assert not sessions.code_is_there(page.code_name)


async def test_a_click_for_another_code_is_answered(sessions: Sessions, pages: Pages) -> None:
    """The other code is that of a worker that derives codes by another key, in the middle of a rotation."""
    page, other = await pages.open(), await pages.make()
    await pages.allow(page)
    after = pages.dump_all()
    second = page.__class__(page.user, page.browser, page.consent, other.code_name, page.code)

    assert await pages.allow(second) == "answered"
    assert {key: value for key, value in pages.dump_all().items() if key in after} == after
    assert not sessions.code_is_there(other.code_name)


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
@pytest.mark.parametrize("answered", [False, True])
async def test_consent_is_bound_to_its_browser_and_session(sessions: Sessions, pages: Pages, answered: bool) -> None:
    page = await pages.open()
    if answered:
        await pages.allow(page)
    other = await pages.sign_in()
    before = pages.dump_all()

    assert await pages.allow(page, browser=other) == "signed_out"
    assert pages.dump_all() == before
    await pages.browser_sessions.end(page.browser)
    before = pages.dump_all()
    assert await pages.allow(page) == "signed_out"
    assert pages.dump_all() == before
    assert sessions.code_is_there(page.code_name) == answered


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


@pytest.mark.clause("decided-i7-revocation-is-final")
async def test_mark_revokes_earlier_codes(sessions: Sessions, pages: Pages) -> None:
    page = await pages.open()
    await pages.allow(page)
    pages.set_mark(sessions.now_ms())

    assert await pages.allow(page) == "unknown"
    assert (await sessions.redeem(page.code_name))[0] == "revoked"


@pytest.mark.parametrize("changes", [{"disabled": True}, {"password_hash": "another"}, {"roles": ()}])
async def test_changed_user_gets_no_code(sessions: Sessions, pages: Pages, changes: dict[str, object]) -> None:
    page = await pages.open()
    await sessions.worker.registry.users.put(msgspec.structs.replace(page.user, **changes))
    before = pages.dump_all()

    assert await pages.allow(page) == "changed"
    assert pages.dump_all() == before
