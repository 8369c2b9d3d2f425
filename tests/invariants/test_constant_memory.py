"""I3: what a family takes in Redis does not grow with the number of its refreshes or replays."""

from collections.abc import Callable

import pytest

from service.store.sessions.families import Spent
from tests.store.pages import Pages
from tests.store.sessions import Session, Sessions
from tests.support.at_rest import read_key

REFRESHES = 2_000
KINDS = ("access", "family", "index", "mark", "code", "redeemed", "revoked", "browser", "consent", "ended")


class OldKeys:
    """Moves the scripts' clock on and lets the few keys of one session age with it."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._offset_ms = 0
        sessions.worker.redis.clock_offset_ms = lambda: self._offset_ms

    def advance(self, milliseconds: int) -> None:
        self._offset_ms += milliseconds
        store = self._sessions.store
        keys = [key for kind in KINDS for key in store.scan_iter(f"{kind}:*", count=1000)]
        pipeline = store.pipeline(transaction=False)
        for key in keys:
            pipeline.pttl(key)
        for key, left_ms in zip(keys, pipeline.execute(), strict=True):
            pipeline.pexpire(key, max(0, left_ms - milliseconds))
        pipeline.execute()


def memory(sessions: Sessions) -> dict[str, tuple[int, int]]:
    """Return for each kind of key of the session the number of keys, and their bytes in all."""
    return _measure(sessions, lambda key: int(sessions.store.memory_usage(key) or 0))


def content(sessions: Sessions) -> dict[str, tuple[int, int]]:
    """The same in characters. Redis gives a hash its room in steps of 64 bytes, so that one digit may cost a step."""
    return _measure(sessions, lambda key: sum(map(len, read_key(sessions.store, key))))


def _measure(sessions: Sessions, measure: Callable[[str], int]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for key in map(str, sessions.store.scan_iter(count=1000)):
        kind = key.partition(":")[0]
        if kind in KINDS:
            count, size = found.get(kind, (0, 0))
            found[kind] = count + 1, size + measure(key)
    return found


async def settle(sessions: Sessions, session: Session, time: OldKeys) -> dict[str, tuple[int, int]]:
    """The content of a family whose earlier access tokens have expired, right after a refresh."""
    time.advance(700_000)
    await sessions.refresh(session)
    return content(sessions)


@pytest.mark.clause("decided-i3-constant-memory")
async def test_family_size_is_independent_of_refreshes(sessions: Sessions) -> None:
    time = OldKeys(sessions)
    session = await sessions.start()
    await sessions.refresh(session)
    early = await settle(sessions, session, time)
    head = sessions.parsed(session).head
    for generation in range(head, head + REFRESHES):
        if generation % 10 == 0:
            time.advance(100_000)
        assert (await sessions.spend(session, generation)).verdict == "rotated"
    late = await settle(sessions, session, time)

    assert sessions.parsed(session).head > REFRESHES
    assert set(early) == set(late) == {"access", "family", "index"}
    for kind, (count, size) in early.items():
        assert late[kind][0] == count
        # Only the digits of the generation may take more room.
        assert late[kind][1] <= size + 16, kind


@pytest.mark.clause("decided-i3-constant-memory")
async def test_at_its_busiest_a_family_has_a_bound(sessions: Sessions) -> None:
    """A refresh and a replay each second for longer than any grace."""
    time = OldKeys(sessions)
    session = await sessions.start()
    sizes = []
    for generation in range(1, 1_001):
        time.advance(1_000) if generation % 20 else time.advance(2_000)
        await sessions.spend(session, generation)
        outcome = await sessions.spend(session, generation)
        assert isinstance(outcome, Spent)
        sizes.append(int(sessions.store.memory_usage(session.key) or 0))

    # A hundred of refreshes, and as many of replays.
    assert memory(sessions)["access"][0] <= 200
    # Generations gain a digit now and then, and an allocator rounds; a leak of 500 refreshes would be far above that.
    assert max(sizes[500:]) <= max(sizes[:500]) + 512


@pytest.mark.clause("decided-i3-constant-memory", "decided-i6-index-pruned")
async def test_repeated_logins_take_bounded_memory(sessions: Sessions) -> None:
    sessions.set_lifetimes(refresh_token_ms=60_000)
    time = OldKeys(sessions)
    seen = []
    for _ in range(50):
        await sessions.start()
        time.advance(61_000)
        await sessions.start()
        seen.append(memory(sessions))

    counts = [{kind: count for kind, (count, _) in each.items()} for each in seen]
    sizes = [sum(size for _, size in each.values()) for each in seen]
    assert all(each == counts[1] for each in counts[1:])
    # An allocator may round one way today and another tomorrow; fifty leftovers would be far above that.
    assert max(sizes[26:]) <= max(sizes[1:26]) + 64


@pytest.mark.clause("decided-i3-constant-memory", "decided-ended-families")
async def test_ended_family_takes_less_memory(sessions: Sessions) -> None:
    """The family leaves a tombstone for a day, whose size varies by the digits of the generation only."""
    time = OldKeys(sessions)
    sizes = []
    for refreshes in (1, 300):
        session = await sessions.start()
        await sessions.refresh(session, refreshes)
        before = memory(sessions)
        await sessions.worker.revocations.revoke_all(session.identity.shard, session.identity.digest)
        assert memory(sessions)["ended"][0] == 1
        assert memory(sessions)["ended"][1] < before["family"][1]
        sizes.append(memory(sessions)["ended"][1])
        time.advance(86_401_000)
        assert "ended" not in memory(sessions)

    assert sizes[1] <= sizes[0] + 16


@pytest.mark.clause("decided-i3-constant-memory", "decided-i6-index-pruned", "decided-i6-pending-login-expires")
async def test_repeated_consents_take_bounded_memory(sessions: Sessions) -> None:
    time, pages = OldKeys(sessions), Pages(sessions)
    browser = await pages.sign_in(lifetime_ms=2_592_000_000)
    seen = []
    for _ in range(50):
        for answer in (pages.allow, pages.deny, None):
            page = await pages.open(browser=browser)
            if answer is not None:
                await answer(page)
        time.advance(1_801_000)
        await pages.open(browser=browser)
        seen.append(memory(sessions))
        time.advance(1_801_000)

    assert all(
        {kind: count for kind, (count, _) in each.items()} == {"browser": 1, "consent": 1, "index": 1} for each in seen
    )
    sizes = [sum(size for _, size in each.values()) for each in seen]
    # The allocator rounds sizes. There are no fifty leftovers.
    assert max(sizes[26:]) <= max(sizes[1:26]) + 64
