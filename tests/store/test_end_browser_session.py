"""A browser signed out: its session ends, and nothing else does."""

from service.store.keys import revoked_key
from tests.store.pages import Pages
from tests.store.sessions import Sessions
from tests.support.clients_and_users import ALICE


async def test_set_aside_browser_session_leaves_its_list(sessions: Sessions, pages: Pages) -> None:
    kept, page = await pages.make(), await pages.make()
    identity = (await sessions.find_user(ALICE)).identity
    sessions.store.rename(pages.index_key(), revoked_key(identity.shard, identity.digest))
    await pages.browser_sessions.end(page.browser)

    assert sessions.store.zrange(revoked_key(identity.shard, identity.digest), 0, -1) == [kept.members[0]]
