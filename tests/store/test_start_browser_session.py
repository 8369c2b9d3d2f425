"""A browser session started by a login."""

import msgspec
import pytest

from service.crypto.keyring import make_browser_session
from service.store.keys import browser_key
from tests.conftest import Clock
from tests.store.pages import Pages
from tests.store.sessions import Sessions
from tests.support.clients_and_users import ALICE, BOB
from tests.support.codes import SESSION_MS
from tests.support.logins import login_of


@pytest.mark.parametrize("changes", [{"disabled": True}, {"password_hash": "another"}, {"roles": ()}])
async def test_login_with_a_changed_record_starts_no_session(
    sessions: Sessions, pages: Pages, changes: dict[str, object]
) -> None:
    user = await sessions.find_user()
    await sessions.worker.registry.users.put(msgspec.structs.replace(user, **changes))
    before = pages.dump_all()

    assert not await pages.browser_sessions.start(
        make_browser_session(user.identity.shard), login_of(user), lifetime_ms=SESSION_MS
    )
    assert pages.dump_all() == before


@pytest.mark.clause("decided-revoke-all-later-tokens-live")
@pytest.mark.parametrize("ahead_ms", [0, 5_000])
async def test_session_after_a_mark_is_younger(sessions: Sessions, pages: Pages, ahead_ms: int) -> None:
    """This holds in the millisecond of the mark, and if the clock went backwards since."""
    marked_ms = sessions.now_ms() + 1_000 + ahead_ms
    pages.set_mark(marked_ms)
    browser = await sessions.run_at(marked_ms - ahead_ms, pages.sign_in)
    record = pages.browser_record(browser)

    assert marked_ms + 1 == int(record["created_ms"])
    assert marked_ms - ahead_ms + SESSION_MS == int(record["expires_ms"])
    assert await pages.hold(await pages.make(browser=browser))


async def test_the_login_of_a_third_one_is_still_the_first(sessions: Sessions, pages: Pages) -> None:
    user = await sessions.find_user()
    first = last = await pages.sign_in()
    for _ in range(2):
        last, former = make_browser_session(user.identity.shard), last
        assert await pages.browser_sessions.start(last, login_of(user), lifetime_ms=SESSION_MS, former=former)
        await pages.browser_sessions.end(former)

    assert pages.browser_record(last)["login"] == first.digest


@pytest.mark.parametrize("case", ["of another user", "ended", "revoked", "over"])
async def test_consent_is_kept_only_from_the_users_live_session(
    sessions: Sessions, pages: Pages, clock: Clock, case: str
) -> None:
    user = await sessions.find_user()
    former = await pages.sign_in(BOB if case == "of another user" else ALICE)
    if case == "ended":
        await pages.browser_sessions.end(former)
    elif case == "revoked":
        pages.set_mark(sessions.now_ms() + 1)
    elif case == "over":
        clock.offset_ms += SESSION_MS + 1
    # The shard is the user's own, so that the script reads the record. Two users can have one shard.
    record = sessions.store.get(browser_key(former.shard, former.digest))
    former = former._replace(shard=user.identity.shard)
    if record:
        sessions.store.set(browser_key(former.shard, former.digest), record)
    browser = make_browser_session(user.identity.shard)
    assert await pages.browser_sessions.start(browser, login_of(user), lifetime_ms=SESSION_MS, former=former)

    assert pages.browser_record(browser)["login"] == browser.digest
