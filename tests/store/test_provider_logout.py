"""The end of one login at an identity provider, with what came from it and from logins without a session id."""

import asyncio
from collections.abc import Coroutine
from itertools import count
from typing import Any

import pytest
import redis

from service.crypto.keyring import make_browser_session
from service.gateway.access_record import access_key
from service.protocol.token_form import RandomToken
from service.protocol.user import Login, digest_sid, identify_user
from service.store.attempts import Counter
from service.store.keys import index_key, login_key, mark_key, revoked_key
from service.store.records import parse_family
from service.store.sessions.revocations import MIN_MARK_LIFETIME_MS, Revocations
from service.web.pages.pending_logins import LIFETIMES_MS, PROVIDER
from tests.conftest import Clock
from tests.store.pages import Page, Pages
from tests.store.sessions import Session, Sessions
from tests.support.clients_and_users import ALICE, UserCredentials
from tests.support.codes import SESSION_MS
from tests.support.logins import login_of

pytestmark = pytest.mark.clause("decided-provider-logout", "decided-i7-revocation-is-final")

ZOE = UserCredentials("zoe", "", realm="cep")
IDENTITY = identify_user(ZOE.realm, ZOE.username)
INDEX, REVOKED = (key(IDENTITY.shard, IDENTITY.digest) for key in (index_key, revoked_key))
ENDED, OTHER, NONE = digest_sid("cep", "one"), digest_sid("cep", "other"), digest_sid("cep", "")


class Logins:
    """What the user has of each login: a session, a code, and a consent of a browser session."""

    def __init__(self, sessions: Sessions, pages: Pages) -> None:
        self.sessions = sessions
        self.pages = pages

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
        return await self.sessions.is_interrupted(
            calls, lambda revocations: revocations.end_provider_login(IDENTITY.shard, IDENTITY.digest, sid)
        )


@pytest.fixture
def logins(sessions: Sessions, pages: Pages) -> Logins:
    return Logins(sessions, pages)


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
    assert logins.sessions.store.pttl(mark_key(IDENTITY.shard, IDENTITY.digest, ENDED)) <= MIN_MARK_LIFETIME_MS


@pytest.mark.parametrize("finish", [ENDED, OTHER, ""])
async def test_interrupted_end_of_a_login_is_finished(logins: Logins, finish: str) -> None:
    """The next call ends the same login, another one, or everything. Until then the mark holds back what was left."""
    for calls in range(1, 100):
        await logins.begin()
        broke = await logins.end(calls)
        assert logins.sessions.store.exists(INDEX), calls  # so that a scan of all users misses none
        session, allowed, waiting, browser = logins.of[ENDED]
        assert not isinstance((await logins.sessions.redeem(allowed.code_name, ZOE))[0], int), calls
        assert await logins.pages.allow(waiting) != "issued", calls
        assert not await logins.pages.hold(await logins.pages.make(ZOE, browser)), calls
        newest = await logins.sessions.start(ZOE, sid=ENDED)
        if finish:
            await logins.end(100, finish)
        else:
            await logins.sessions.worker.revocations.revoke_all(IDENTITY.shard, IDENTITY.digest)

        assert logins.sessions.live(session) == [False], calls
        assert logins.sessions.live(newest) == [finish == OTHER], calls
        assert await logins.list_live(OTHER) == {finish == ENDED}, calls
        assert not logins.sessions.store.exists(REVOKED)
        if not broke:
            break
    assert calls >= 4


async def test_code_ends_with_the_login_that_allowed_it(logins: Logins) -> None:
    """The user logs in again in the same browser, and then answers a consent that was already open."""
    former = await logins.pages.sign_in(ZOE, sid=OTHER)
    page = await logins.pages.open(ZOE, former)
    login, browser = login_of(page.user, ENDED), make_browser_session(IDENTITY.shard)
    await logins.pages.browser_sessions.start(browser, login, lifetime_ms=SESSION_MS, former=former)
    assert await logins.pages.allow(page, browser=browser) == "issued"

    assert not await logins.end()

    assert not isinstance((await logins.sessions.redeem(page.code_name, ZOE))[0], int)


CONTENDERS = 8


class Contenders:
    """What a user has of several logins, used all at once. `sid_of` has the login of each session that started."""

    def __init__(self, logins: Logins, sids: list[str]) -> None:
        self._logins = logins
        self._sids = sids
        self.sid_of: list[tuple[Session, str]] = []

    async def begin(self) -> list[Coroutine[Any, Any, object]]:
        work: list[Coroutine[Any, Any, object]] = []
        begun_ms = self._logins.sessions.now_ms()
        for sid in self._sids:
            session, allowed, waiting, browser = await self._logins.log_in(sid)
            self.sid_of.append((session, sid))
            late = await self._logins.pages.make(ZOE, browser)
            login = login_of(await self._logins.sessions.find_user(ZOE), sid, begun_ms=begun_ms)
            work += [self._refresh(session), self._redeem(allowed, sid), self._allow(waiting, sid)]
            work += [self._hold(late, sid), self._log_in(login)]
        return work

    async def _refresh(self, session: Session) -> None:
        for generation in (1, 2, 2, 3):
            await self._logins.sessions.spend(session, generation)

    async def _redeem(self, page: Page, sid: str) -> None:
        outcome, session = await self._logins.sessions.redeem(page.code_name, ZOE)
        if isinstance(outcome, int):
            self.sid_of.append((session, sid))
            await self._refresh(session)

    async def _allow(self, page: Page, sid: str) -> None:
        if await self._logins.pages.allow(page) == "issued":
            await self._redeem(page, sid)

    async def _hold(self, page: Page, sid: str) -> None:
        if await self._logins.pages.hold(page):
            await self._allow(page, sid)

    async def _log_in(self, login: Login) -> None:
        for _ in range(4):
            await self._logins.sessions.try_to_start(login)
            browser = make_browser_session(login.user.identity.shard)
            await self._logins.pages.browser_sessions.start(browser, login, lifetime_ms=SESSION_MS)


def read_sids(store: redis.Redis) -> set[str]:
    """Return the sid of every record."""
    keys = [key for kind in ("browser", "consent", "code") for key in store.scan_iter(f"{kind}:*")]
    families = {parse_family(str(store.get(key)).encode()).sid for key in store.scan_iter("family:*")}
    return families | {str(store.get(key)).rpartition("\n")[2] for key in keys}


@pytest.mark.parametrize("place", [0, 40])
@pytest.mark.parametrize("everything", [False, True])
async def test_end_of_a_login_wins_against_many_requests(logins: Logins, place: int, everything: bool) -> None:
    """Refreshes, exchanges, answers and logins that are under way bring nothing back. A revokeAll may run as well."""
    store, revocations = logins.sessions.store, Revocations(logins.sessions.worker.redis, max_keys=2)
    contenders = Contenders(logins, [ENDED, OTHER, NONE] * CONTENDERS)
    work = await contenders.begin()
    ends: list[Coroutine[Any, Any, object]] = [
        revocations.end_provider_login(IDENTITY.shard, IDENTITY.digest, ENDED) for _ in range(2)
    ]
    if everything:
        ends.append(revocations.revoke_all(IDENTITY.shard, IDENTITY.digest))
    work[place:place] = ends
    await asyncio.gather(*work)

    left = set() if everything else {OTHER}
    assert read_sids(store) == left
    for session, sid in contenders.sid_of:
        assert any(logins.sessions.live(session)) == (sid in left)
    families = [parse_family(str(store.get(key)).encode()) for key in store.scan_iter("family:*")]
    digests = [digest for family in families for digest in family.access_digests]
    assert {*store.scan_iter("access:*")} <= {access_key(IDENTITY.shard, digest) for digest in digests}
    assert not store.exists(REVOKED)


@pytest.mark.parametrize("revokers", [1, 4])
async def test_login_that_began_before_a_revocation_never_starts(logins: Logins, revokers: int) -> None:
    """A login whose check began and ended with no revocation under way always starts a session."""
    sessions = logins.sessions
    user = await sessions.find_user(ALICE)
    identity, counter = user.identity, Counter(login_key(user.identity), 1_000, 60_000)
    steps = count()
    revoked: list[tuple[int, int]] = []
    checked: list[tuple[tuple[int, int, int, int], bool]] = []

    async def revoke(pauses: int) -> None:
        await pause(pauses)
        began = next(steps)
        await sessions.worker.revocations.revoke_all(identity.shard, identity.digest)
        revoked.append((began, next(steps)))

    async def log_in(pauses: int) -> None:
        times = [next(steps)]
        marked_ms = await sessions.worker.attempts.reserve([counter])
        times.append(next(steps))
        await pause(pauses)
        times.append(next(steps))
        started = await sessions.try_to_start(login_of(user, begun_ms=marked_ms + 1)) is not None
        checked.append(((times[0], times[1], times[2], next(steps)), started))

    async def pause(times: int) -> None:
        for _ in range(times):
            await sessions.worker.redis.read_clock_ms()

    for _ in range(5):
        work = [revoke(5 + 3 * number) for number in range(revokers)] + [log_in(number % 20) for number in range(40)]
        await asyncio.gather(*work)

    for (first, reserved, last, ended), started in checked:
        if any(reserved < began and done < last for began, done in revoked):
            assert not started
        if not any(began < ended and first < done for began, done in revoked):
            assert started
    assert {started for _, started in checked} == {True, False}
