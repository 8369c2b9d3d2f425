"""revokeAll over many sessions: in steps that let others through, and finished by who asks again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from service.config.settings import load_settings
from service.redis_client.deadline import DEADLINE_SECONDS
from service.store.client import load_script
from service.worker import Worker
from tests.conftest import Clock, serving
from tests.faults.deployment import Deployment, Session, call_of, start_sessions
from tests.support.clients_and_users import PHONE_APP, assert_error, revoke_all
from tests.support.loop_time import LoopTime
from tests.support.redis_monitor import recording_commands
from tests.support.waiting import until, until_status

REVOKE_ALL = load_script("sessions/revoke_all")
MAX_KEYS = 300
"""The limit of keys that one step deletes: an access token and a family may exceed it. The bench measures a step's
time.
"""

KEYS_OF_A_SESSION = 2
USERNAME = "many-sessions@example.com"


def count_live(deployment: Deployment, kind: str) -> int:
    return sum(1 for _ in deployment.store.scan_iter(f"{kind}:*", count=5000))


async def assert_dead(deployment: Deployment, http: httpx2.AsyncClient, sessions: list[Session]) -> None:
    for access_token, refresh_token in sessions:
        assert not deployment.knows_access_token(access_token)
        assert_error(await PHONE_APP.refresh(http, refresh_token), 400, "invalid_grant")


@pytest.mark.clause("decided-revoke-all-many-sessions", "decided-i7-revocation-is-final", "decided-revoke-all-covers")
@pytest.mark.clause("spec-4.4-status-200")
async def test_revoke_all_ends_thousands_in_short_steps(
    deployment: Deployment, worker: Worker, held_time: LoopTime
) -> None:
    """However many sessions there are, a step deletes few keys. The benchmark measures how long a step takes."""
    count = 2_000
    of_another = await start_sessions(worker, "another@example.com", 1)
    sessions = await start_sessions(worker, USERNAME, count)
    async with serving(load_settings(deployment.environment()), Clock(deployment.store)) as http:
        with recording_commands(deployment.store) as commands:
            answer = await revoke_all(http, sessions[0][0])

        assert (answer.status_code, answer.content) == (200, b"")
        assert (count_live(deployment, "family"), count_live(deployment, "access")) == (1, 1)
        assert not list(deployment.store.scan_iter("index:*:" + USERNAME)) + list(
            deployment.store.scan_iter("revoked:*")
        )
        await assert_dead(deployment, http, sessions[:: count // 20])
    assert deployment.knows_access_token(of_another[0][0])
    # Each session is a family and an access token.
    steps = sum(REVOKE_ALL.sha1 in command for command in commands)
    assert steps >= KEYS_OF_A_SESSION * count / MAX_KEYS


@asynccontextmanager
async def serving_behind_proxy(deployment: Deployment) -> AsyncIterator[httpx2.AsyncClient]:
    """The service in this process, whose time the test may hold."""
    async with serving(
        load_settings(deployment.environment(REDIS_URL=deployment.proxy.url)), Clock(deployment.store)
    ) as http:
        yield http


@pytest.mark.clause("decided-revoke-all-many-sessions", "decided-revoke-all-presented-token-last")
@pytest.mark.clause("decided-i7-revocation-is-final")
@pytest.mark.parametrize("steps", [1, 4])
async def test_repeated_revoke_all_finishes_an_interrupted_one(
    deployment: Deployment, direct_http: httpx2.AsyncClient, worker: Worker, held_time: LoopTime, steps: int
) -> None:
    sessions = await start_sessions(worker, USERNAME, 1_000)

    async with serving_behind_proxy(deployment) as http:
        deployment.proxy.hold_at = (call_of("sessions/revoke_all"), steps)
        revocation = asyncio.create_task(revoke_all(http, sessions[0][0]))
        await until(lambda: deployment.proxy.held, "the step that is held")
        await held_time.advance_in_steps(DEADLINE_SECONDS)
        assert_error(await revocation, 503, "temporarily_unavailable")
        deployment.proxy.held = False

        assert count_live(deployment, "access") > 0
        assert deployment.knows_access_token(sessions[0][0])
        # The mark holds already: what is not deleted yet cannot be refreshed any more.
        assert_error(await PHONE_APP.refresh(direct_http, sessions[-1][1]), 400, "invalid_grant")
        later = await start_sessions(worker, USERNAME, 1)
        assert deployment.knows_access_token(later[0][0])

        with held_time.running_at(1):
            await until_status(lambda: revoke_all(http, sessions[0][0]), 200)
    assert (count_live(deployment, "family"), count_live(deployment, "access")) == (0, 0)
    assert not list(deployment.store.scan_iter("revoked:*"))
