"""An authorization code spent once, for a family."""

import pytest

from tests.conftest import Clock
from tests.store.sessions import Sessions


async def test_a_code_becomes_a_family(sessions: Sessions) -> None:
    _, session = await sessions.redeem(await sessions.issue_code(), secret_used=True)

    assert sessions.parsed(session).secret_used
    assert session.member in sessions.index(session)
    assert not [member for member in sessions.index(session) if member.startswith("code:")]


@pytest.mark.clause("6749-4.1.2-code-expires")
async def test_the_record_decides_when_a_code_is_over_not_the_key(sessions: Sessions, clock: Clock) -> None:
    name = await sessions.issue_code()
    clock.offset_ms += 60_000

    assert (await sessions.redeem(name))[0] == "unknown"
    clock.offset_ms -= 2_000
    assert (await sessions.redeem(name))[0] == 600_000


@pytest.mark.clause("decided-i7-revocation-is-final")
async def test_code_covered_by_a_mark_yields_no_tokens(sessions: Sessions) -> None:
    other = await sessions.start()
    name = await sessions.issue_code()
    sessions.set_mark(other, sessions.now_ms())
    before = set(sessions.store.scan_iter())
    outcome, session = await sessions.redeem(name)

    assert outcome == "revoked"
    assert sessions.live(session) == [False]
    assert before == set(sessions.store.scan_iter())


async def test_family_is_never_older_than_its_code(sessions: Sessions, clock: Clock) -> None:
    """A mark between the two would not cover a session with an earlier time."""
    at_issue_ms = sessions.now_ms()
    name = await sessions.issue_code()
    clock.offset_ms -= 30_000
    _, session = await sessions.redeem(name)

    assert at_issue_ms <= sessions.parsed(session).created_ms
