"""revokeAll as a whole: thousands of sessions, several clients, a token that goes last, a break in the middle."""

import asyncio

import pytest

from service.protocol.user import identify_user
from service.store import revocations as revocations_module
from service.store.connection import StoreUnavailable
from service.store.keys import access_key, index_key, mark_key, revoked_key
from service.store.revocations import MOST_KEYS, Revocations
from tests.cast import ALICE, BOB
from tests.conftest import MakeSettings
from tests.store.interruptions import BreakingConnection
from tests.store.pages import Pages
from tests.store.sessions import Session, Sessions

IDENTITY = identify_user("main", ALICE.username)
OF_ALICE = [key(IDENTITY.shard, IDENTITY.subject) for key in (index_key, revoked_key, mark_key)]


@pytest.mark.clause("spec-4.4-all-tokens", "decided-revoke-all-covers")
async def test_everything_of_the_user_ends_in_every_client_and_nothing_of_others(sessions: Sessions) -> None:
    phone, shop = await sessions.start(), await sessions.start(client_id="web-shop", secret_used=True)
    code, bob = await sessions.issue_code(client_id="web-shop"), await sessions.start(BOB)
    await sessions.refresh(shop, 2)
    await sessions.parts.revocations.revoke_all(IDENTITY.shard, IDENTITY.subject)

    assert (sessions.live(phone), sessions.live(shop), sessions.live(bob)) == ([False], [False] * 3, [True])
    assert (await sessions.redeem(code))[0] == "unknown"
    assert (await sessions.spend(shop, 3)).verdict == "unknown"
    assert (await sessions.spend(bob, 1)).verdict == "rotated"


@pytest.mark.clause("decided-revoke-all-many-sessions")
async def test_more_sessions_than_one_step_takes_all_end(sessions: Sessions) -> None:
    started = [await sessions.start() for _ in range(MOST_KEYS + 20)]
    await sessions.parts.revocations.revoke_all(
        IDENTITY.shard, IDENTITY.subject, kept_family=started[7].first.family_digest
    )
    live = [access_key(IDENTITY.shard, session.access_tokens[0].digest) for session in started]

    assert sessions.store.exists(*live) == 0
    keys = (index_key(IDENTITY.shard, IDENTITY.subject), revoked_key(IDENTITY.shard, IDENTITY.subject))
    assert sessions.store.exists(*keys) == 0


@pytest.mark.clause("decided-revoke-all-presented-token-last", "decided-revoke-all-many-sessions")
@pytest.mark.parametrize("calls", range(5))
async def test_however_a_revoke_all_breaks_off_the_same_token_can_ask_again(
    sessions: Sessions, make_settings: MakeSettings, calls: int
) -> None:
    """Wherever it broke: the presented token is live, or nothing at all is."""
    started = [await sessions.start() for _ in range(600)]
    kept = started[300]
    connection = BreakingConnection(make_settings(), calls=calls)
    broken = Revocations(connection)
    with pytest.raises(StoreUnavailable):
        await broken.revoke_all(IDENTITY.shard, IDENTITY.subject, kept_family=kept.first.family_digest)
    await connection.close()
    live = [session for session in started if sessions.live(session)[0]]

    assert not live or kept in live
    await sessions.parts.revocations.revoke_all(IDENTITY.shard, IDENTITY.subject, kept_family=kept.first.family_digest)
    assert not [session for session in started if sessions.live(session)[0]]


@pytest.mark.clause("decided-revoke-all-presented-token-last", "decided-revoke-all-covers-logins")
@pytest.mark.parametrize("calls", range(5))
async def test_however_it_breaks_off_the_browser_that_asked_can_ask_again(
    sessions: Sessions, pages: Pages, make_settings: MakeSettings, calls: int
) -> None:
    """Wherever it broke: the browser session is there, or nothing at all is."""
    started = [await sessions.start() for _ in range(600)]
    browser = await pages.sign_in()
    connection = BreakingConnection(make_settings(), calls=calls)
    with pytest.raises(StoreUnavailable):
        await Revocations(connection).revoke_all(IDENTITY.shard, IDENTITY.subject, kept_browser=browser.digest)
    await connection.close()
    live = [session for session in started if sessions.live(session)[0]]

    assert not live or await pages.browser_sessions.find(browser) is not None
    assert await pages.hold(await pages.make(browser=browser)) == (calls == 0)
    await sessions.parts.revocations.revoke_all(IDENTITY.shard, IDENTITY.subject, kept_browser=browser.digest)
    assert not [session for session in started if sessions.live(session)[0]]
    assert await pages.browser_sessions.find(browser) is None
    assert not sessions.store.exists(*OF_ALICE[:2])


async def test_a_user_without_anything_is_no_fault(sessions: Sessions) -> None:
    await sessions.parts.revocations.revoke_all(IDENTITY.shard, IDENTITY.subject, kept_family="unknown")

    assert (await sessions.spend(await sessions.start(), 1)).verdict == "rotated"


class Retries:
    """revokeAll asked for again and again with one token; a step takes so little that there are many."""

    def __init__(self, sessions: Sessions, make_settings: MakeSettings) -> None:
        self._sessions = sessions
        self._make_settings = make_settings

    async def begin(self) -> None:
        self._sessions.store.delete(*OF_ALICE)
        self.started = [await self._sessions.start() for _ in range(5)]
        self.kept = self.started[2]

    async def log_in_again(self) -> None:
        self.started.append(await self._sessions.start())

    async def ask(self, calls: int) -> bool:
        """Over a connection that breaks after so many calls; whether it did break. Whatever loops fails."""
        connection = BreakingConnection(self._make_settings(), calls=calls)
        try:
            async with asyncio.timeout(20):
                digest = self.kept.first.family_digest
                await Revocations(connection).revoke_all(IDENTITY.shard, IDENTITY.subject, kept_family=digest)
        except StoreUnavailable:
            return True
        finally:
            await connection.close()
        return False

    @property
    def live(self) -> list[Session]:
        return [session for session in self.started if self._sessions.live(session)[0]]

    @property
    def kept_stays(self) -> bool:
        return self.kept in self.live and bool(self._sessions.record(self.kept))

    @property
    def without_an_end(self) -> list[str]:
        """Keys of sessions and of their ends that would stay for good."""
        kinds = ("access:", "family:", "index:", "revoked:", "mark:")
        keys = [str(key) for key in self._sessions.store.scan_iter(count=1000)]
        return [key for key in keys if key.startswith(kinds) and self._sessions.pttl(key) == -1]


@pytest.fixture
def retries(sessions: Sessions, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch) -> Retries:
    monkeypatch.setattr(revocations_module, "MOST_KEYS", 2)
    return Retries(sessions, make_settings)


@pytest.mark.clause(
    "decided-revoke-all-presented-token-last", "decided-revoke-all-many-sessions", "decided-i6-everything-expires"
)
@pytest.mark.parametrize("logs_in_again", [True, False])
async def test_a_retry_that_breaks_off_again_can_be_repeated_wherever_the_two_broke(
    sessions: Sessions, retries: Retries, logs_in_again: bool
) -> None:
    """The token that asks is dead only where the call came to its end, and then so is everything."""
    tried = set[tuple[int, int]]()
    for first in range(1, 100):
        for second in range(100):
            await retries.begin()
            first_broke = await retries.ask(first)
            if not first_broke:
                break
            assert retries.kept_stays, (first, second)
            assert not retries.without_an_end, (first, second)
            if logs_in_again:
                await retries.log_in_again()
            second_broke = await retries.ask(second)
            assert retries.kept_stays == second_broke, (first, second)
            assert not retries.without_an_end, (first, second)
            tried.add((first, second))
            assert not await retries.ask(100), (first, second)
            assert retries.live == [], (first, second)
            assert not sessions.store.exists(*OF_ALICE[:2]), (first, second)
            if not second_broke:
                break
        if not first_broke:
            break

    assert {first for first, _ in tried} >= {1, 2, 3, 4}
    assert {second for _, second in tried} >= {0, 1, 2, 3, 4}


@pytest.mark.clause("decided-revoke-all-presented-token-last", "decided-revoke-all-many-sessions")
@pytest.mark.parametrize("calls", range(1, 5))
async def test_logins_between_many_broken_calls_do_not_keep_it_from_ending(
    sessions: Sessions, retries: Retries, calls: int
) -> None:
    await retries.begin()
    for _ in range(10):
        if not await retries.ask(calls):
            break
        assert retries.kept_stays
        assert not retries.without_an_end
        await retries.log_in_again()
    last = retries.started[-1]
    await retries.ask(100)

    assert retries.live == []
    assert (await sessions.spend(last, 1)).verdict == "unknown"
    assert not sessions.store.exists(*OF_ALICE[:2])


async def test_another_token_of_the_user_can_finish_what_the_first_one_began(
    sessions: Sessions, retries: Retries
) -> None:
    """It stays as long as it can itself: the one that was kept before goes with the rest."""
    await retries.begin()
    await retries.ask(2)
    await retries.log_in_again()
    retries.kept = retries.started[-1]
    calls = 0
    while await retries.ask(calls):
        assert retries.kept_stays
        calls += 1

    assert retries.live == []
    assert not sessions.store.exists(*OF_ALICE[:2])
