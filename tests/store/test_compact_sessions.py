"""The form of a session in Redis: each hash stays compact, with the limits that servers have by default."""

from __future__ import annotations

import pytest
import redis

from service.protocol.scope import MAIN_REALM, ROLES
from service.store.families import Spent
from tests.conftest import Clock
from tests.store.sessions import Session, Sessions
from tests.support.clients_and_users import access_key_of

MAX_ACCESS_TOKENS = 100
OTHER_FIELDS = 20
MAX_FIELD_LENGTH = 64
"""The limit in characters up to which Redis keeps a hash in its compact form."""
COMPACT = ("listpack", "ziplist")
ALL_ROLES = " ".join([f"realm:{MAIN_REALM}", *(f"role:{role}" for role in ROLES)])
FOUR_ROLES = " ".join(ALL_ROLES.split()[:5])

pytestmark = pytest.mark.clause("decided-session-stays-compact")


def assert_compact(store: redis.Redis, session: Session) -> None:
    assert max(map(len, map(str, store.hvals(session.key)))) <= MAX_FIELD_LENGTH
    assert store.object("encoding", session.key) in COMPACT


async def refresh_and_retry(sessions: Sessions, session: Session, clock: Clock, retries: int, seconds: float) -> None:
    """Refresh at intervals, and retry each refresh so many times."""
    for _ in range(12):
        clock.offset_ms += round(1000 * seconds)
        head = (await sessions.refresh(session)).head
        for _ in range(retries):
            assert (await sessions.spend(session, head - 1, allowed_scope=ALL_ROLES)).verdict == "repeated"


@pytest.mark.parametrize("scope", [FOUR_ROLES, ALL_ROLES], ids=["four roles", "all roles"])
async def test_a_user_with_many_roles_has_compact_sessions(
    sessions: Sessions, store: redis.Redis, clock: Clock, scope: str
) -> None:
    session = await sessions.start(scope=scope)
    assert_compact(store, session)
    outcome = await sessions.spend(session, 1, allowed_scope=ALL_ROLES)
    assert isinstance(outcome, Spent)

    assert_compact(store, session)
    assert (outcome.scope, sessions.parsed(session).scope) == (scope, scope)
    token = session.access_tokens[-1]
    assert str(store.get(f"access:{{{token.shard}}}:{token.digest}")).split("\n")[7] == scope
    clock.offset_ms += 301_000
    assert (await sessions.spend(session, 1)).verdict == "replayed"
    assert sessions.tombstone(session)["scope"] == scope


@pytest.mark.parametrize(("retries", "seconds"), [(1, 50), (1, 0.1), (2, 600), (6, 600)])
async def test_a_session_whose_refreshes_are_retried_stays_compact(
    sessions: Sessions, store: redis.Redis, clock: Clock, retries: int, seconds: float
) -> None:
    session = await sessions.start()
    await refresh_and_retry(sessions, session, clock, retries, seconds)

    assert_compact(store, session)


async def test_a_session_a_year_old_stays_compact(sessions: Sessions, store: redis.Redis, clock: Clock) -> None:
    sessions.set_lifetimes(refresh_token_ms=400 * 86_400_000)
    session = await sessions.start()
    clock.offset_ms += 365 * 86_400_000
    assert (await sessions.spend(session, 99_999)).verdict == "recovered"
    await refresh_and_retry(sessions, session, clock, 1, 50)

    assert_compact(store, session)


async def test_expired_tokens_of_replays_leave_no_fields(sessions: Sessions, store: redis.Redis, clock: Clock) -> None:
    session = await sessions.start()
    await refresh_and_retry(sessions, session, clock, 3, 10)
    clock.offset_ms += 700_000
    await sessions.refresh(session)

    assert sessions.parsed(session).replayed == ()
    assert not [name for name in map(str, store.hkeys(session.key)) if name.startswith("p")]


async def test_a_replay_leaves_the_fields_of_earlier_ones(sessions: Sessions, clock: Clock) -> None:
    """The field of a replay's token keeps its place until the token has expired."""
    session = await sessions.start()
    await sessions.refresh(session)
    for _ in range(3):
        clock.offset_ms += 90_000
        await sessions.spend(session, 1)
    kept = sessions.parsed(session).replayed
    clock.offset_ms += 450_000
    await sessions.refresh(session)

    assert sessions.parsed(session).replayed == kept[1:]
    assert len(kept) == 3


@pytest.mark.clause("decided-i3-constant-memory")
async def test_replays_whose_tokens_are_revoked_do_not_add_up(sessions: Sessions, store: redis.Redis) -> None:
    session = await sessions.start()
    await sessions.refresh(session)
    for _ in range(3 * MAX_ACCESS_TOKENS):
        assert (await sessions.spend(session, 1)).verdict == "repeated"
        store.delete(access_key_of(session.access_tokens[-1].text))

    assert store.hlen(session.key) < MAX_ACCESS_TOKENS + OTHER_FIELDS
