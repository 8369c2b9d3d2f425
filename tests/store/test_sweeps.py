"""A sweep over all users: it ends what the judge says no to, of the clients in question, and nothing else."""

import pytest

from service.protocol.client import AUTHORIZATION_CODE, PASSWORD
from service.store.connection import StoreUnavailable
from service.store.sweeps import Session as Judged
from service.store.sweeps import Sweeps
from tests.cast import ALICE, BOB
from tests.store.sessions import ENDUSER, Sessions


async def go_on() -> None:
    """Nothing to do between batches."""


@pytest.fixture
def sweeps(sessions: Sessions) -> Sweeps:
    return Sweeps(sessions.parts.connection, sessions.families)


@pytest.mark.clause("decided-seed-ends-sessions")
async def test_sessions_and_codes_of_the_client_end_for_every_user(sessions: Sessions, sweeps: Sweeps) -> None:
    alice, bob = await sessions.start(ALICE), await sessions.start(BOB)
    code = await sessions.issue_code(BOB)
    shop = await sessions.start(client_id="web-shop")
    ended = await sweeps.end_sessions({"phone-app"}, lambda _: False, after_batch=go_on)

    assert ended == 3
    assert (sessions.live(alice), sessions.live(bob), sessions.live(shop)) == ([False], [False], [True])
    assert not sessions.code_is_there(code)


async def test_the_judge_is_told_what_a_session_rests_on(sessions: Sessions, sweeps: Sweeps) -> None:
    await sessions.start(scope="realm:main role:enduser role:organisation")
    await sessions.redeem(await sessions.issue_code(client_id="web-shop"), client_id="web-shop")
    await sessions.issue_code()
    judged: list[Judged] = []

    def keep(session: Judged) -> bool:
        judged.append(session)
        return True

    assert await sweeps.end_sessions({"phone-app", "web-shop"}, keep, after_batch=go_on) == 0
    assert {
        Judged("phone-app", PASSWORD, ALICE.username, "realm:main role:enduser role:organisation"),
        Judged("web-shop", AUTHORIZATION_CODE, ALICE.username, ENDUSER),
        Judged("phone-app", AUTHORIZATION_CODE, ALICE.username, ENDUSER),
    } == set(judged)


async def test_hundreds_of_sessions_are_all_seen(sessions: Sessions, sweeps: Sweeps) -> None:
    started = [await sessions.start(person) for person in (ALICE, BOB) for _ in range(150)]

    assert await sweeps.end_sessions({"phone-app"}, lambda _: False, after_batch=go_on) == 300
    assert not [session for session in started if sessions.record(session) or sessions.live(session)[0]]
    assert {} == sessions.index(started[0]) == sessions.index(started[-1])


async def test_a_sweep_without_anything_to_end_is_no_fault(sweeps: Sweeps) -> None:
    assert await sweeps.end_sessions({"phone-app"}, lambda _: False, after_batch=go_on) == 0


async def test_whoever_sweeps_hears_of_every_batch(sessions: Sessions, sweeps: Sweeps) -> None:
    """That is where its lock is renewed; a batch is about a thousand keys of the server."""
    await sessions.start()
    for number in range(3_000):
        sessions.store.set(f"other:{number}", "x", px=60_000)
    batches: list[bool] = []

    async def after_batch() -> None:
        batches.append(True)

    await sweeps.end_sessions({"phone-app"}, lambda _: True, after_batch=after_batch)

    assert len(batches) >= 6


async def test_a_sweep_whose_lock_is_lost_ends_nothing_more(sessions: Sessions, sweeps: Sweeps) -> None:
    session, code = await sessions.start(), await sessions.issue_code()

    async def lose() -> None:
        raise StoreUnavailable("another holds the lock")

    with pytest.raises(StoreUnavailable):
        await sweeps.end_sessions({"phone-app"}, lambda _: False, after_batch=lose)

    assert not sessions.code_is_there(code)
    assert sessions.live(session) == [True]
