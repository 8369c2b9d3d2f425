"""A sweep over all users: it ends what the judge says no to, of the clients in question, and nothing else."""

import pytest

from service.protocol.client import AUTHORIZATION_CODE, PASSWORD
from service.store.sweeps import Session as Judged
from service.store.sweeps import Sweeps
from tests.cast import ALICE, BOB
from tests.store.sessions import ENDUSER, Sessions


@pytest.fixture
def sweeps(sessions: Sessions) -> Sweeps:
    return Sweeps(sessions.parts.connection, sessions.families)


@pytest.mark.clause("decided-seed-ends-sessions")
async def test_sessions_and_codes_of_the_client_end_for_every_user(sessions: Sessions, sweeps: Sweeps) -> None:
    alice, bob = await sessions.start(ALICE), await sessions.start(BOB)
    code = await sessions.issue_code(BOB)
    shop = await sessions.start(client_id="web-shop")
    ended = await sweeps.end_sessions({"phone-app"}, lambda _: False)

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

    assert await sweeps.end_sessions({"phone-app", "web-shop"}, keep) == 0
    assert {
        Judged("phone-app", PASSWORD, "realm:main role:enduser role:organisation"),
        Judged("web-shop", AUTHORIZATION_CODE, ENDUSER),
        Judged("phone-app", AUTHORIZATION_CODE, ENDUSER),
    } == set(judged)


async def test_hundreds_of_sessions_are_all_seen(sessions: Sessions, sweeps: Sweeps) -> None:
    started = [await sessions.start(person) for person in (ALICE, BOB) for _ in range(150)]

    assert await sweeps.end_sessions({"phone-app"}, lambda _: False) == 300
    assert not [session for session in started if sessions.record(session) or sessions.live(session)[0]]
    assert {} == sessions.index(started[0]) == sessions.index(started[-1])


async def test_a_sweep_without_anything_to_end_is_no_fault(sweeps: Sweeps) -> None:
    assert await sweeps.end_sessions({"phone-app"}, lambda _: False) == 0
