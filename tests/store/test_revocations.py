"""revokeAll as a whole: thousands of sessions, several clients, the presented token deleted last, interruptions."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from service.protocol.user import identify_user
from service.redis_client.deadline import StoreUnavailable
from service.store.keys import code_key, index_key, make_key, mark_key, revoked_key
from service.store.sessions.families import UserEnding
from service.store.sessions.revocations import MAX_KEYS, Revocations
from tests.conftest import Clock
from tests.store.pages import Pages
from tests.store.sessions import Session, Sessions
from tests.support.clients_and_users import ALICE, BOB, METER, UserCredentials

IDENTITY = identify_user("main", ALICE.username)
OF_ALICE = [key(IDENTITY.shard, IDENTITY.digest) for key in (index_key, revoked_key, mark_key)]


async def revoke_all(revocations: Revocations, **options: Any) -> None:
    await revocations.revoke_all(IDENTITY.shard, IDENTITY.digest, **options)


async def test_expired_session_is_not_recorded_as_revoked(sessions: Sessions, clock: Clock) -> None:
    """Its record outlives it by a day, so that most refreshes do not have to write the lifetime."""
    session = await sessions.start()
    clock.advance(30 * 86_400 + 60)
    await sessions.worker.revocations.revoke_all(IDENTITY.shard, IDENTITY.digest)

    assert sessions.tombstone(session) == {}


@pytest.mark.clause("decided-revoke-all-presented-token-last", "decided-revoke-all-covers-logins")
@pytest.mark.parametrize("calls", range(5))
async def test_interrupted_revoke_all_can_be_repeated(sessions: Sessions, pages: Pages, calls: int) -> None:
    """The browser session is there after each interruption, or everything is deleted."""
    started = [await sessions.start() for _ in range(600)]
    browser = await pages.sign_in()
    revoke = partial(revoke_all, kept_browser=browser.digest)
    assert await sessions.is_interrupted(calls, revoke, max_keys=MAX_KEYS)
    live = [session for session in started if sessions.live(session)[0]]

    assert not live or await pages.browser_sessions.find(browser) is not None
    assert await pages.hold(await pages.make(browser=browser)) == (calls == 0)
    await revoke(sessions.worker.revocations)
    assert not [session for session in started if sessions.live(session)[0]]
    assert await pages.browser_sessions.find(browser) is None
    assert not sessions.store.exists(*OF_ALICE[:2])


KEYS_PER_STEP = 2


class Retries:
    """Repeated revokeAll requests with one token, with steps so small that there are many."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def begin(self) -> None:
        self._sessions.store.delete(*OF_ALICE)
        self.started = [await self._sessions.start() for _ in range(5)]
        self.kept = self.started[2]

    async def log_in_again(self) -> None:
        self.started.append(await self._sessions.start())

    async def ask(self, calls: int) -> bool:
        """Run revokeAll over a connection that fails after so many calls. Returns True if it failed."""
        kept_family = self.kept.first.family_digest
        return await self._sessions.is_interrupted(calls, partial(revoke_all, kept_family=kept_family))

    @property
    def live(self) -> list[Session]:
        return [session for session in self.started if self._sessions.live(session)[0]]

    @property
    def kept_stays(self) -> bool:
        return self.kept in self.live and bool(self._sessions.record(self.kept))

    @property
    def without_an_end(self) -> list[str]:
        """Return the keys of sessions and tombstones that have no TTL."""
        kinds = ("access:", "family:", "index:", "revoked:", "mark:")
        keys = [str(key) for key in self._sessions.store.scan_iter(count=1000)]
        return [key for key in keys if key.startswith(kinds) and self._sessions.pttl(key) == -1]


@pytest.fixture
def retries(sessions: Sessions) -> Retries:
    return Retries(sessions)


@pytest.mark.clause("decided-revoke-all-presented-token-last", "decided-revoke-all-many-sessions")
@pytest.mark.clause("decided-i6-everything-expires")
@pytest.mark.parametrize("logs_in_again", [True, False])
async def test_interrupted_retry_can_be_repeated(sessions: Sessions, retries: Retries, logs_in_again: bool) -> None:
    """The presented token is dead only if the call was completed, and then everything is deleted."""
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


async def test_another_token_can_finish_a_revoke_all(sessions: Sessions, retries: Retries) -> None:
    """The family of the presented token stays to the end.

    The one that an earlier call kept is deleted with the rest.
    """
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


class SessionsOfThreeAges:
    """Sessions of three ages, two of each, with ten seconds between the ages and a time that parts them.

    A step deletes two keys.
    """

    def __init__(self, sessions: Sessions, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock

    async def begin(self) -> None:
        self._sessions.store.delete(*OF_ALICE)
        self.oldest, self.until_ms = await self.start()
        self.middle, self.later_ms = await self.start()

    async def start(self) -> tuple[list[Session], int]:
        started = [await self._sessions.start() for _ in range(2)]
        self._clock.advance(10)
        return started, self._sessions.now_ms() - 5_000

    async def ask(self, calls: int, until_ms: int) -> bool:
        """Run revokeAll over a connection that fails after so many calls. Returns True if it failed."""
        return await self._sessions.is_interrupted(calls, partial(revoke_all, until_ms=until_ms))

    def are_live(self, sessions: list[Session]) -> bool:
        """Return True if all are live, and False if none is."""
        (live,) = {live for session in sessions for live in self._sessions.live(session)}
        assert live == all(self._sessions.record(session) for session in sessions)
        return live

    @property
    def indexed(self) -> set[str]:
        return set(self._sessions.index(self.oldest[0]))


@pytest.fixture
def ages(sessions: Sessions, clock: Clock) -> SessionsOfThreeAges:
    return SessionsOfThreeAges(sessions, clock)


@pytest.mark.clause("decided-revoke-all-issued-before", "decided-i7-revocation-is-final")
async def test_any_revoke_all_finishes_an_interrupted_earlier_one(
    sessions: Sessions, ages: SessionsOfThreeAges
) -> None:
    """The second call has the same time, a later one, or none. Meanwhile the live sessions are used and ended."""
    for calls in range(100):
        broke = False
        for finish in ("same", "later", "now"):
            await ages.begin()
            broke = await ages.ask(calls, ages.until_ms)
            await sessions.refresh(ages.middle[0])
            newest, _ = await ages.start()
            until_ms = {"same": ages.until_ms, "later": ages.later_ms, "now": 0}[finish]
            await ages.ask(100, until_ms)

            lives = (ages.are_live(ages.oldest), ages.are_live(ages.middle), ages.are_live(newest))
            assert lives == (False, finish == "same", finish != "now"), (calls, finish)
            left = {"same": ages.middle + newest, "later": newest, "now": []}[finish]
            assert ages.indexed == {session.member for session in left}, (calls, finish)
            assert not sessions.store.exists(OF_ALICE[1])
        if not broke:
            break

    assert calls >= 3


@pytest.mark.clause("decided-revoke-all-issued-before", "decided-i7-revocation-is-final")
async def test_earlier_revoke_all_finishes_an_interrupted_one(sessions: Sessions, ages: SessionsOfThreeAges) -> None:
    """The mark of the first call holds. The earlier time of the second spares nothing that it covered."""
    for calls in range(100):
        await ages.begin()
        broke = await ages.ask(calls, 0)
        newest, _ = await ages.start()
        await ages.ask(100, ages.until_ms)

        lives = (ages.are_live(ages.oldest), ages.are_live(ages.middle), ages.are_live(newest))
        assert lives == (False, calls == 0, True), calls
        assert not sessions.store.exists(OF_ALICE[1])
        if not broke:
            break

    assert calls >= 3


@pytest.mark.clause("decided-revoke-all-issued-before", "decided-revoke-all-covers-logins")
async def test_revocation_by_time_signs_out_older_browsers_only(sessions: Sessions, pages: Pages, clock: Clock) -> None:
    older = await pages.open()
    until_ms = sessions.now_ms()
    clock.advance(10)
    younger = await pages.open()
    late = await pages.open(browser=older.browser)
    await sessions.worker.revocations.revoke_all(IDENTITY.shard, IDENTITY.digest, until_ms=until_ms)

    answers = [await pages.allow(page) for page in (older, late, younger)]
    assert answers == ["unknown", "signed_out", "issued"]


@pytest.mark.clause("decided-revoke-all-issued-before")
async def test_many_users_are_taken_at_once(sessions: Sessions) -> None:
    alice, bob, meter = [await sessions.start(person) for person in (ALICE, BOB, METER)]
    users = [UserEnding.of(session.identity, "cli") for session in (alice, bob)]
    await sessions.worker.revocations.revoke_all_of(users * 20)

    assert [sessions.live(session) for session in (alice, bob, meter)] == [[False], [False], [True]]
    assert sessions.tombstone(bob)["reason"] == "cli"


def make_neighbours(count: int) -> list[UserCredentials]:
    """Return users of Alice's shard."""
    names = (UserCredentials(f"user{number}", "", realm="cep") for number in itertools.count())
    neighbours = (each for each in names if identify_user("cep", each.username).shard == IDENTITY.shard)
    return list(itertools.islice(neighbours, count))


class Neighbours:
    """Users of one shard, whom one step serves together. The first has many sessions, the last has none."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        people = make_neighbours(5)
        self.endings = [UserEnding.of(identify_user("cep", person.username), "cli") for person in people]
        self.people = people

    async def begin(self) -> None:
        for kind in ("index", "revoked", "mark"):
            self._sessions.store.delete(*(make_key(kind, each.shard, each.digest) for each in self.endings))
        several = [self.people[0]] * 6 + self.people[1:4]
        self.started = [await self._sessions.start(person) for person in several]

    @property
    def live(self) -> list[Session]:
        return [session for session in self.started if any(self._sessions.live(session))]


@pytest.mark.clause("decided-revoke-all-many-sessions", "decided-i7-revocation-is-final")
@pytest.mark.parametrize("has_time", [False, True])
async def test_step_of_several_users_can_be_interrupted(sessions: Sessions, clock: Clock, has_time: bool) -> None:
    """Whatever call fails, repeating the revocation ends what is left, and younger sessions of these users stay."""
    neighbours = Neighbours(sessions)
    for calls in range(100):
        await neighbours.begin()
        until_ms = sessions.now_ms() if has_time else 0
        clock.advance(1)
        younger = await sessions.start(neighbours.people[1]) if has_time else None
        revoke = partial(Revocations.revoke_all_of, users=neighbours.endings, until_ms=until_ms)
        broke = await sessions.is_interrupted(calls, revoke)
        await revoke(sessions.worker.revocations)

        assert neighbours.live == [], calls
        assert younger is None or sessions.live(younger) == [True]
        assert sessions.store.exists(*(mark_key(each.shard, each.digest) for each in neighbours.endings)) == 5
        if not broke:
            break

    assert calls >= 5


@pytest.mark.clause("decided-i7-revocation-is-final")
async def test_logins_and_revocations_of_one_shard_contend(sessions: Sessions) -> None:
    """Of sessions that start meanwhile, exactly those that are younger than their user's last mark are live."""
    neighbours = Neighbours(sessions)
    revocations = Revocations(sessions.worker.redis, max_keys=KEYS_PER_STEP)
    await neighbours.begin()

    async def contend(number: int) -> None:
        for _ in range(4):
            if number % 3:
                neighbours.started.append(await sessions.start(neighbours.people[number % 5]))
            else:
                await revocations.revoke_all_of(neighbours.endings)

    await asyncio.gather(*(contend(number) for number in range(24)))
    for session in neighbours.started:
        marked_ms = int(str(sessions.store.get(mark_key(IDENTITY.shard, session.identity.digest))))
        assert sessions.live(session) == [sessions.created_ms(session) > marked_ms]


async def test_an_outage_ends_the_whole_of_it(sessions: Sessions) -> None:
    tasks, users = asyncio.all_tasks(), [UserEnding.of(IDENTITY, "cli")] * 100

    assert await sessions.is_interrupted(3, partial(Revocations.revoke_all_of, users=users))
    assert tasks == asyncio.all_tasks()


@contextmanager
def unreadable(sessions: Sessions, *keys: str) -> Iterator[None]:
    """Replace these records by those of another version inside the block."""
    records = {key: (sessions.store.pttl(key), sessions.store.dump(key)) for key in keys}
    for key in keys:
        sessions.store.set(key, "3", keepttl=True)
    yield
    for key, (left_ms, record) in records.items():
        assert record is not None
        sessions.store.restore(key, left_ms, record, replace=True)


@pytest.mark.clause("decided-revoke-all-unreadable-record", "decided-newer-record")
@pytest.mark.parametrize("has_time", [False, True])
@pytest.mark.parametrize("max_keys", [1, 2, MAX_KEYS])
async def test_unreadable_records_keep_no_others(
    sessions: Sessions, pages: Pages, has_time: bool, max_keys: int
) -> None:
    """The records that expire first are unreadable. Only a revocation by time reads those that are not of sessions."""
    session, page, code = await sessions.start(), await pages.open(), await sessions.issue_code()
    left = [await sessions.start(refresh_token_ttl=60) for _ in range(3)]
    keys = [each.key for each in left]
    keys += [page.browser_key, page.consent_key, code_key(code.shard, code.digest)] if has_time else []
    revocations = Revocations(sessions.worker.redis, max_keys=max_keys)
    revoke = partial(revoke_all, revocations, until_ms=sessions.now_ms() if has_time else 0)
    with unreadable(sessions, *keys):
        for _ in range(2):
            late = await sessions.start()
            with pytest.raises(StoreUnavailable, match="cannot be read"):
                await revoke()

            assert (sessions.live(session), sessions.live(late)) == ([False], [has_time])
            assert [sessions.live(each) for each in left] == [[True]] * 3
            assert has_time or not sessions.store.exists(page.browser_key, page.consent_key)
            assert sessions.pttl(OF_ALICE[1]) > max(sessions.pttl(key) for key in keys)
    await revoke()

    assert [sessions.live(each) for each in left] == [[False]] * 3
    assert not sessions.store.exists(OF_ALICE[1], page.browser_key, page.consent_key)
    assert not sessions.code_is_there(code)


@pytest.mark.clause("decided-revoke-all-unreadable-record")
@pytest.mark.parametrize("max_keys", [1, MAX_KEYS])
async def test_unreadable_record_of_one_user_keeps_no_other(sessions: Sessions, max_keys: int) -> None:
    neighbours, bob = Neighbours(sessions), await sessions.start(BOB)
    await neighbours.begin()
    revocations = Revocations(sessions.worker.redis, max_keys=max_keys)
    users = [UserEnding.of(bob.identity, "cli"), *neighbours.endings]
    broken = neighbours.started[3]
    with unreadable(sessions, broken.key):
        done = list[int]()
        assert await revocations.revoke_all_of(users, after_users=done.append) == [neighbours.endings[0]]
        assert (neighbours.live, sessions.live(bob), sum(done)) == ([broken], [False], len(users) - 1)
        with pytest.raises(StoreUnavailable, match="1 users"):
            await revocations.revoke_all_left([neighbours.endings[0]])
    await revocations.revoke_all_left([neighbours.endings[0]])

    assert neighbours.live == []


@pytest.mark.clause("decided-revoke-all-unreadable-record", "decided-i7-revocation-is-final")
async def test_unreadable_record_is_told_to_all_contenders(sessions: Sessions) -> None:
    """Calls that finish each other's work all fail, and end all sessions but this one."""
    revocations = Revocations(sessions.worker.redis, max_keys=1)
    broken, *started = [await sessions.start() for _ in range(20)]

    async def contend(number: int) -> None:
        if number % 2:
            started.append(await sessions.start())
        kept_family = started[number].first.family_digest if number % 3 else ""
        with pytest.raises(StoreUnavailable, match="cannot be read"):
            await revoke_all(revocations, kept_family=kept_family)

    with unreadable(sessions, broken.key):
        async with asyncio.timeout(60):
            await asyncio.gather(*(contend(number) for number in range(18)))
        with pytest.raises(StoreUnavailable, match="cannot be read"):
            await revoke_all(revocations)
        assert not [session for session in started if sessions.live(session)[0]]
    await revoke_all(revocations)

    assert sessions.live(broken) == [False]


@pytest.mark.clause("decided-revoke-all-unreadable-record", "decided-revoke-all-on-a-full-redis")
async def test_full_redis_ends_all_but_an_unreadable_session(sessions: Sessions) -> None:
    """A step that finds the unreadable one first changes its score, which needs memory."""
    first, newer, *others = [await sessions.start() for _ in range(5)]
    scores = {each.member: 1e13 + place for place, each in enumerate((first, newer, *others))}
    sessions.store.zadd(OF_ALICE[0], scores)
    sessions.store.set(newer.key, "3\nlines")
    sessions.store.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreUnavailable, match="cannot be read"):
            await revoke_all(Revocations(sessions.worker.redis, max_keys=KEYS_PER_STEP))
    finally:
        sessions.store.config_set("maxmemory", 0)
    assert [sessions.live(each) for each in (first, *others)] == 4 * [[False]]
