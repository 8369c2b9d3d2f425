"""An authorization code spent once, for a family."""

import pytest

from service.protocol.authorization_code import RedeemedCode
from tests.conftest import Clock
from tests.store.sessions import ENDUSER, Sessions
from tests.support.clients_and_users import ALICE


@pytest.mark.clause("6749-4.1.4-token-response")
async def test_a_code_becomes_a_family(sessions: Sessions) -> None:
    outcome, session = await sessions.redeem(await sessions.issue_code(), secret_used=True)
    family = sessions.parsed(session)

    assert outcome == 600_000
    assert (family.grant_type, family.head, family.secret_used) == ("authorization_code", 1, True)
    assert ("phone-app", ENDUSER, ALICE.username) == (family.client_id, family.scope, family.username)
    assert sessions.live(session) == [True]
    assert session.member in sessions.index(session)
    assert not [member for member in sessions.index(session) if member.startswith("code:")]
    assert (await sessions.spend(session, 1)).verdict == "rotated"


@pytest.mark.clause("6749-4.1.2-second-use-denied", "6749-10.5-short-lived-single-use")
async def test_a_code_buys_tokens_once(sessions: Sessions) -> None:
    name = await sessions.issue_code(code_challenge="c" * 43)
    _, first = await sessions.redeem(name)
    outcome, second = await sessions.redeem(name)

    assert outcome == "repeated"
    assert (sessions.record(second), sessions.live(second)) == (None, [False])
    assert sessions.live(first) == [True]
    assert not sessions.code_is_there(name)
    assert RedeemedCode(
        client_id="phone-app", code_challenge="c" * 43, family_digest=first.first.family_digest
    ) == await sessions.codes.find(name)


@pytest.mark.clause("decided-second-exchange-remembered", "decided-i6-everything-expires")
@pytest.mark.parametrize(("code_seconds", "remembered_seconds"), [(60, 600), (3_600, 3_600)])
async def test_second_use_of_a_code_is_recognised_long_enough(
    sessions: Sessions, clock: Clock, code_seconds: int, remembered_seconds: int
) -> None:
    sessions.set_lifetimes(code_ms=1_000 * code_seconds)
    name = await sessions.issue_code()
    await sessions.redeem(name)
    clock.advance(remembered_seconds - 1)
    assert (await sessions.redeem(name))[0] == "repeated"
    clock.advance(1.5)

    assert (await sessions.redeem(name))[0] == "unknown"
    assert await sessions.codes.find(name) is None


async def test_an_unknown_code_is_unknown_and_leaves_nothing(sessions: Sessions) -> None:
    name = await sessions.issue_code()
    sessions.store.delete(f"code:{{{name.shard}}}:{name.digest}")
    before = set(sessions.store.scan_iter())

    assert (await sessions.redeem(name))[0] == "unknown"
    assert before == set(sessions.store.scan_iter())


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


@pytest.mark.clause("decided-session-max-age", "decided-access-token-within-family")
async def test_the_greatest_age_counts_from_the_exchange(sessions: Sessions, clock: Clock) -> None:
    sessions.set_lifetimes(session_max_age_ms=90_000)
    name = await sessions.issue_code()
    clock.advance(30)
    outcome, session = await sessions.redeem(name)
    record = sessions.parsed(session)

    assert 90_000 == outcome == record.expires_ms - record.created_ms
