"""An authorization code written for one client, and found again."""

import pytest

from service.credentials import make_authorization_code
from service.protocol.authorization_code import AuthorizationCode
from service.protocol.user import identify_user
from tests.cast import ALICE, PHONE_CALLBACK
from tests.conftest import Clock
from tests.store.sessions import ENDUSER, Sessions

IDENTITY = identify_user("main", ALICE.username)
INDEX = f"index:{{{IDENTITY.shard}}}:{IDENTITY.subject}"


@pytest.mark.clause("6749-4.1.2-code-bound", "7636-4.4-challenge-bound-to-code")
@pytest.mark.parametrize("challenge", [None, "c" * 43])
async def test_a_code_is_found_with_all_that_it_was_issued_for(sessions: Sessions, challenge: str | None) -> None:
    name = make_authorization_code(IDENTITY.shard)
    code = AuthorizationCode(
        subject=IDENTITY.subject,
        username=ALICE.username,
        client_id="phone-app",
        redirect_uri=PHONE_CALLBACK + "?keep=%0A",
        scope=ENDUSER,
        code_challenge=challenge,
    )
    await sessions.codes.issue(name, code)

    assert code == await sessions.codes.find(name)


@pytest.mark.clause("decided-code-ttl", "6749-4.1.2-code-expires", "decided-i6-everything-expires")
async def test_a_code_and_its_place_in_the_index_end_by_themselves(sessions: Sessions, clock: Clock) -> None:
    kept = set(sessions.store.scan_iter())
    name = await sessions.issue_code()
    assert [f"code:{name.digest}"] == sessions.store.zrange(INDEX, 0, -1)
    clock.advance(59)
    assert await sessions.codes.find(name) is not None
    clock.advance(1.5)

    assert await sessions.codes.find(name) is None
    assert kept == set(sessions.store.scan_iter())


async def test_a_code_does_not_shorten_the_index_of_a_session(sessions: Sessions) -> None:
    session = await sessions.start()
    await sessions.issue_code()

    assert sessions.pttl(INDEX) > 2_591_000_000
    assert len(sessions.index(session)) == 2


@pytest.mark.parametrize("ahead_ms", [0, 5_000])
async def test_a_code_issued_after_a_mark_is_younger_than_it(sessions: Sessions, ahead_ms: int) -> None:
    earlier = await sessions.start()
    marked_ms = sessions.now_ms() + 1_000 + ahead_ms
    sessions.set_mark(earlier, marked_ms)
    _, name = await sessions.run_at(marked_ms - ahead_ms, sessions.issue_code)
    outcome, session = await sessions.redeem(name)

    assert outcome == 600_000
    assert marked_ms + 1 <= int(sessions.record(session)["created_ms"])
