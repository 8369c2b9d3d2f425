"""A browser signed out: its session ends, and nothing else does."""

import pytest

from service.store.client import load_script
from service.store.keys import revoked_key
from tests.store.pages import Pages
from tests.store.sessions import Sessions
from tests.support.clients_and_users import ALICE


async def end(pages: Pages, key: str, digest: str) -> str:
    """Run the script alone and return its word."""
    connection = pages.sessions.worker.redis
    return str(
        (await connection.run(load_script("browsers/end_browser_session"), browser_key=key, browser_digest=digest))[0]
    )


async def test_a_session_is_ended_once_and_unknown_after_that(pages: Pages) -> None:
    before = pages.dump_all()
    page = await pages.make()

    assert await end(pages, page.browser_key, page.browser.digest) == "ended"
    assert pages.dump_all() == before
    assert await end(pages, page.browser_key, page.browser.digest) == "unknown"
    assert pages.dump_all() == before


async def test_other_browsers_families_and_codes_of_the_user_go_on(sessions: Sessions, pages: Pages) -> None:
    family, code, other = await sessions.start(), await sessions.issue_code(), await pages.open()
    before = pages.dump_all()
    browser = await pages.sign_in()
    await pages.browser_sessions.end(browser)

    assert pages.dump_all() == before
    assert sessions.live(family) == [True]
    assert (await sessions.redeem(code))[0] == 600_000
    assert await pages.allow(other) == "issued"


@pytest.mark.clause("6749-10.12-csrf")
async def test_open_page_of_an_ended_session_is_rejected(pages: Pages) -> None:
    page, answered = await pages.open(), await pages.open()
    await pages.allow(answered)
    for each in (page, answered):
        await pages.browser_sessions.end(each.browser)

    assert [await pages.allow(page), await pages.deny(page), await pages.allow(answered)] == ["signed_out"] * 3
    assert not await pages.hold(page)


async def test_set_aside_browser_session_leaves_its_list(sessions: Sessions, pages: Pages) -> None:
    kept, page = await pages.make(), await pages.make()
    identity = (await sessions.find_user(ALICE)).identity
    sessions.store.rename(pages.index_key(), revoked_key(identity.shard, identity.subject))
    await pages.browser_sessions.end(page.browser)

    assert sessions.store.zrange(revoked_key(identity.shard, identity.subject), 0, -1) == [kept.members[0]]
