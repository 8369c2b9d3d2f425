"""The lifetimes of one client, which change while its sessions live."""

import asyncio
from typing import Any

import pytest

from service.store.sessions.families import RefreshRefused
from tests.conftest import Clock
from tests.store.sessions import Sessions
from tests.support.clients_and_users import BOB

pytestmark = pytest.mark.clause("decided-client-lifetimes")


@pytest.mark.clause("decided-too-old-stays-ended", "decided-session-max-age")
@pytest.mark.parametrize("generation", [1, 2, 9])
async def test_longer_age_never_revives_a_refused_session(sessions: Sessions, clock: Clock, generation: int) -> None:
    session = await sessions.start()
    await sessions.refresh(session)
    clock.advance(100)

    assert await sessions.spend(session, generation, session_max_age=100) == RefreshRefused("unknown")

    assert sessions.tombstone(session)["reason"] == "too_old"
    assert sessions.live(session) == [False, False]
    assert await sessions.spend(session, 2, session_max_age=1_000_000) == RefreshRefused("unknown")


@pytest.mark.clause("decided-too-old-stays-ended", "decided-foreign-client-harms-nothing")
async def test_another_client_cannot_end_an_old_session(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start(secret_used=True)
    clock.advance(100)
    brief: dict[str, Any] = {"session_max_age": 1}

    foreign = await sessions.spend(session, 1, client_id="web-shop", **brief)
    without = await sessions.spend(session, 1, secret_used=False, **brief)

    assert [foreign.verdict, without.verdict] == ["foreign", "without_secret"]
    assert (await sessions.spend(session, 1)).verdict == "rotated"


async def test_expired_and_revoked_sessions_leave_no_ending(sessions: Sessions, clock: Clock) -> None:
    expired, revoked = await sessions.start(refresh_token_ttl=90), await sessions.start(BOB)
    sessions.set_mark(revoked, sessions.now_ms())
    clock.offset_ms += 95_000

    for session in expired, revoked:
        assert await sessions.spend(session, 1, session_max_age=1) == RefreshRefused("unknown")
        assert not sessions.tombstone(session)
        assert sessions.record(session)


@pytest.mark.clause("decided-refresh-grace-setting")
async def test_one_client_has_no_grace_beside_the_default(sessions: Sessions, clock: Clock) -> None:
    strict, other = await sessions.start(), await sessions.start(client_id="web-shop")
    for session in strict, other:
        await sessions.spend(session, 1)
    clock.advance(200)

    assert (await sessions.spend(other, 1)).verdict == "repeated"
    assert (await sessions.spend(strict, 1)).verdict == "repeated"
    assert (await sessions.spend(strict, 1, refresh_grace=0)).verdict == "replayed"
    assert (await sessions.spend(other, 2)).verdict == "rotated"


@pytest.mark.clause("decided-too-old-stays-ended", "decided-i1-one-winner")
async def test_no_concurrent_refresh_survives_the_end(sessions: Sessions, clock: Clock) -> None:
    """For a moment some workers have the old record of the client, and others the new one."""
    session = await sessions.start()
    clock.advance(100)
    ages: list[dict[str, Any]] = [*[{}] * 7, {"session_max_age": 60}] * 8

    outcomes = await asyncio.gather(*(sessions.spend(session, 1, **age) for age in ages))

    verdicts = {outcome.verdict for outcome in outcomes}
    assert "unknown" in verdicts <= {"rotated", "repeated", "unknown"}
    assert not any(sessions.live(session))
    assert sessions.tombstone(session)["reason"] == "too_old"
    assert (await sessions.spend(session, 2)).verdict == "unknown"
