"""The end of one login at an identity provider, with what came from it and from logins without a session id."""

from __future__ import annotations

import pytest

from service.protocol.token_form import RandomToken
from service.protocol.user import digest_sid, identify_user
from service.redis_client.deadline import StoreUnavailable
from service.store.keys import index_key, mark_key, revoked_key
from service.store.revocations import MIN_MARK_LIFETIME_MS, Revocations
from service.web.pages.pending_logins import LIFETIMES_MS, PROVIDER
from tests.conftest import Clock, MakeSettings
from tests.store.interruptions import BreakingConnection, InterposedConnection, Rollback
from tests.store.pages import Page, Pages
from tests.store.sessions import Session, Sessions
from tests.support.clients_and_users import UserCredentials
from tests.support.logins import LATER_MS, login_of

pytestmark = pytest.mark.clause("decided-provider-logout", "decided-i7-revocation-is-final")

ZOE = UserCredentials("zoe", "", realm="cep")
IDENTITY = identify_user(ZOE.realm, ZOE.username)
INDEX, REVOKED = (key(IDENTITY.shard, IDENTITY.subject) for key in (index_key, revoked_key))
ENDED, OTHER, NONE = digest_sid("cep", "one"), digest_sid("cep", "other"), digest_sid("cep", "")


class Logins:
    """What the user has of each login: a session, a code, and a consent of a browser session."""

    def __init__(self, sessions: Sessions, pages: Pages, make_settings: MakeSettings) -> None:
        self.sessions = sessions
        self.pages = pages
        self._make_settings = make_settings

    async def begin(self) -> None:
        self.sessions.store.delete(INDEX, REVOKED, *self.sessions.store.scan_iter("mark:*"))
        self.of = {sid: await self.log_in(sid) for sid in (ENDED, OTHER, NONE)}

    async def log_in(self, sid: str) -> tuple[Session, Page, Page, RandomToken]:
        session = await self.sessions.start(ZOE, sid=sid)
        browser = await self.pages.sign_in(ZOE, sid=sid)
        allowed, waiting = [await self.pages.open(ZOE, browser) for _ in range(2)]
        assert await self.pages.allow(allowed) == "issued"
        return session, allowed, waiting, browser

    async def list_live(self, sid: str) -> set[bool]:
        """Return whether each can still be used. An exchange and an answer use up the code and the consent."""
        session, allowed, waiting, browser = self.of[sid]
        late = await self.pages.make(ZOE, browser)
        return {
            (await self.sessions.spend(session, self.sessions.parsed(session).head)).verdict == "rotated"
            if self.sessions.record(session)
            else False,
            self.sessions.live(session)[0],
            isinstance((await self.sessions.redeem(allowed.code_name, ZOE))[0], int),
            await self.pages.allow(waiting) == "issued",
            await self.pages.hold(late),
        }

    async def end(self, calls: int = 100, sid: str = ENDED) -> bool:
        """End a login over a connection that fails after so many calls. Returns True if it failed."""
        connection = BreakingConnection(self._make_settings(), calls=calls)
        try:
            await Revocations(connection, max_keys=2).end_provider_login(IDENTITY.shard, IDENTITY.subject, sid)
        except StoreUnavailable:
            return True
        finally:
            await connection.close()
        return False


@pytest.fixture
def logins(sessions: Sessions, pages: Pages, make_settings: MakeSettings) -> Logins:
    return Logins(sessions, pages, make_settings)


def test_a_mark_outlives_a_login_at_a_provider() -> None:
    assert LIFETIMES_MS[PROVIDER] + 60_000 <= MIN_MARK_LIFETIME_MS


@pytest.mark.parametrize("set_back", [False, True])
async def test_end_of_a_login_ends_what_came_from_it(logins: Logins, clock: Clock, set_back: bool) -> None:
    """Also if the records look younger than the mark, because the clock was set back."""
    clock.offset_ms = 5_000 if set_back else 0
    await logins.begin()
    clock.offset_ms = 0
    assert not await logins.end()
    clock.offset_ms = 5_000

    assert [await logins.list_live(sid) for sid in (ENDED, NONE, OTHER)] == [{False}, {False}, {True}]
    assert logins.sessions.tombstone(logins.of[ENDED][0])["reason"] == "provider_logout"
    assert not logins.sessions.store.exists(REVOKED)
    assert logins.sessions.store.pttl(mark_key(IDENTITY.shard, IDENTITY.subject, ENDED)) <= MIN_MARK_LIFETIME_MS


async def test_code_names_the_login_of_its_session(logins: Logins) -> None:
    await logins.begin()
    _, family = await logins.sessions.redeem(logins.of[ENDED][1].code_name, ZOE)
    assert not await logins.end()

    assert logins.sessions.live(family) == [False]


async def test_interrupted_end_of_a_login_can_be_repeated(logins: Logins) -> None:
    """Whatever the interruption, the mark keeps codes and consents from leading to a session."""
    for calls in range(1, 100):
        await logins.begin()
        broke = await logins.end(calls)
        session, allowed, waiting, browser = logins.of[ENDED]
        assert not isinstance((await logins.sessions.redeem(allowed.code_name, ZOE))[0], int), calls
        assert await logins.pages.allow(waiting) != "issued", calls
        assert not await logins.pages.hold(await logins.pages.make(ZOE, browser)), calls
        assert not await logins.end()

        assert logins.sessions.live(session) == [False], calls
        assert await logins.list_live(OTHER) == {True}, calls
        assert not logins.sessions.store.exists(REVOKED)
        if not broke:
            break
    assert calls >= 4


@pytest.mark.parametrize("first", [ENDED, OTHER, ""])
async def test_another_revocation_finishes_an_interrupted_one(logins: Logins, first: str) -> None:
    """Each ends what it covers, and only that. An empty sid stands for a revokeAll."""
    for calls in range(1, 100):
        await logins.begin()
        if first:
            broke = await logins.end(calls, first)
            await logins.sessions.worker.revocations.revoke_all(IDENTITY.shard, IDENTITY.subject)
            lives = {ENDED: {False}, OTHER: {False}}
        else:
            broke = await logins.end(calls, ENDED)
            await logins.end(100, OTHER)
            lives = {ENDED: {False}, OTHER: {False}}
        newest = await logins.sessions.start(ZOE, sid=ENDED)

        assert {sid: await logins.list_live(sid) for sid in lives} == lives, calls
        assert logins.sessions.live(newest) == [True]
        assert not logins.sessions.store.exists(REVOKED)
        if not broke:
            break
    assert calls >= 4


@pytest.mark.clause("decided-revoke-all-survives-lost-mark")
@pytest.mark.single_server("the scripts run elsewhere")
async def test_lost_mark_of_a_login_is_made_again(logins: Logins, make_settings: MakeSettings) -> None:
    """Redis returns to the state before each of the scripts, when each later one is about to run."""
    scripts, tried = 100, 0
    for lost_at in range(1, 100):
        for returns_to in range(lost_at):
            await logins.begin()
            rollback = Rollback(logins.sessions.store)

            async def before(
                number: int, rollback: Rollback = rollback, at: tuple[int, int] = (lost_at, returns_to)
            ) -> None:
                rollback.save()
                if number == at[0]:
                    rollback.return_to(at[1])

            connection = InterposedConnection(make_settings(), before)
            await Revocations(connection, max_keys=4).end_provider_login(IDENTITY.shard, IDENTITY.subject, ENDED)
            scripts = connection.calls
            await connection.close()
            tried += 1

            session = logins.of[ENDED][0]
            assert logins.sessions.live(session) == [False], (lost_at, returns_to)
            assert logins.sessions.live(logins.of[OTHER][0]) == [True]
        if lost_at >= scripts:
            break
    assert tried >= 6


@pytest.mark.parametrize("sid", [ENDED, NONE, OTHER])
async def test_login_under_way_starts_nothing(logins: Logins, sid: str) -> None:
    user = await logins.sessions.find_user(ZOE)
    begun_ms = logins.sessions.now_ms()
    await logins.end()
    started = [await logins.sessions.try_to_start(login_of(user, sid, begun_ms=each)) for each in (begun_ms, LATER_MS)]

    assert [each is not None for each in started] == [sid == OTHER, True]
