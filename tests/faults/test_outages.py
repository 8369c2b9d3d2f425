"""Redis is killed, frozen or cut off: 503 in time from everything, and back again by itself."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import NamedTuple

import httpx2
import pytest

from service.config.settings import load_settings
from service.store.client import load_script
from service.worker import Worker
from tests.conftest import Clock, make_code, serving
from tests.faults.deployment import Deployment, ask_at_once, http_client_for
from tests.support.clients_and_users import (
    ALICE,
    AUDITOR,
    BOB,
    MADE_SECRET,
    PHONE_APP,
    PHONE_CALLBACK,
    READER,
    USERINFO,
    WEB_SHOP,
    assert_error,
    bearer,
    delete_user,
    put_user,
    revoke_all,
    revoke_user,
    tokens_of,
    verify,
)
from tests.support.loop_time import LoopTime
from tests.support.waiting import until_reachable, until_status, wait_until

FLOOD = 100
CROWD = 20
ROUNDS = 2
"""The requests of the first round meet existing connections, those of the second round none."""

PROBE = load_script("reports/probe_store")
OUTAGES = ("killed", "frozen", "cut_off")


class Held(NamedTuple):
    """The tokens and codes that clients hold when Redis goes away."""

    alice: Mapping[str, str]
    bob: Mapping[str, str]
    code: str


async def hold_something(http: httpx2.AsyncClient, worker: Worker) -> Held:
    alice, bob = tokens_of(await PHONE_APP.log_in(http, ALICE)), tokens_of(await WEB_SHOP.log_in(http, BOB))
    return Held(alice, bob, await make_code(worker))


def ask_for_everything(http: httpx2.AsyncClient, held: Held) -> list[Awaitable[httpx2.Response]]:
    """Return a request of each kind that needs Redis."""
    return [
        PHONE_APP.log_in(http, ALICE),
        READER.log_in(http, ALICE),
        PHONE_APP.refresh(http, held.alice["refresh_token"]),
        MADE_SECRET.refresh(http, held.alice["refresh_token"]),
        PHONE_APP.exchange(http, held.code, PHONE_CALLBACK),
        WEB_SHOP.revoke(http, held.bob["refresh_token"]),
        WEB_SHOP.revoke(http, held.bob["access_token"]),
        revoke_all(http, held.bob["access_token"]),
        revoke_user(http, {"format": "email", "email": BOB.username}),
        put_user(http, BOB.username, {"password": BOB.password}),
        delete_user(http, BOB.username),
        verify(http, held.bob["access_token"]),
        http.get(USERINFO, headers=bearer(held.bob["access_token"])),
        AUDITOR.introspect(http, held.bob["access_token"]),
        AUDITOR.introspect(http, held.bob["refresh_token"]),
    ]


def assert_all_refused(answers: list[httpx2.Response]) -> None:
    for answer in answers:
        assert_error(answer, 503, "temporarily_unavailable")
        assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.clause("decided-redis-away", "decided-i8-fail-closed", "decided-healthz", "decided-readyz")
@pytest.mark.clause("decided-i10-outage-is-not-theft", "7009-2.2.1-503", "decided-error-statuses")
@pytest.mark.parametrize("outage", OUTAGES)
async def test_everything_is_503_without_redis_and_recovers(
    deployment: Deployment, worker: Worker, loop_time: LoopTime, outage: str
) -> None:
    async with http_client_for(
        deployment.proxied_service if outage == "cut_off" else deployment.direct_service
    ) as http:
        held = await hold_something(http, worker)
        alice, bob, _ = held

        with getattr(deployment, outage)():
            for _ in range(ROUNDS):
                assert_all_refused(await asyncio.gather(*ask_for_everything(http, held)))
                assert (await http.get("/healthz")).status_code == 200
                await until_status(lambda: http.get("/readyz"), 503)  # the result of an earlier probe may be cached

        await until_status(lambda: PHONE_APP.refresh(http, alice["refresh_token"]), 200)
        await until_status(lambda: verify(http, alice["access_token"]), 200)
        assert (await AUDITOR.introspect(http, alice["access_token"])).json()["active"]
        await until_status(lambda: http.get("/readyz"), 200)
        with loop_time.running_at(1):
            await until_reachable(worker)
        many = await asyncio.gather(*(PHONE_APP.refresh(http, alice["refresh_token"]) for _ in range(CROWD)))
        assert len({tokens_of(answer)["refresh_token"] for answer in many}) == 1
        assert (await PHONE_APP.exchange(http, await make_code(worker), PHONE_CALLBACK)).status_code == 200
        assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
        assert (await WEB_SHOP.revoke(http, bob["refresh_token"])).status_code == 200
        assert not deployment.knows_access_token(bob["access_token"])


@pytest.mark.clause("decided-redis-away", "decided-i8-fail-closed", "decided-i8-one-deadline")
@pytest.mark.parametrize("outage", OUTAGES)
async def test_without_redis_each_answer_comes_within_two_seconds(
    deployment: Deployment, worker: Worker, held_time: LoopTime, outage: str
) -> None:
    url = deployment.proxy.url if outage == "cut_off" else deployment.redis.url
    async with serving(load_settings(deployment.environment(REDIS_URL=url)), Clock(deployment.store)) as http:
        held = await hold_something(http, worker)
        with getattr(deployment, outage)():
            for _ in range(ROUNDS):
                *answers, alive, ready = await ask_at_once(
                    held_time, *ask_for_everything(http, held), http.get("/healthz"), http.get("/readyz")
                )
                assert_all_refused(answers)
                assert (alive.status_code, ready.status_code) == (200, 503)
        with held_time.running_at(1):
            await until_status(lambda: http.get("/readyz"), 200)


@pytest.mark.clause("decided-readyz", "decided-i10-outage-is-not-theft")
async def test_a_redis_that_forgets_the_scripts_gets_them_again(
    deployment: Deployment, direct_http: httpx2.AsyncClient
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(direct_http, ALICE))
    deployment.store.script_flush()

    answers = await asyncio.gather(*(PHONE_APP.refresh(direct_http, tokens["refresh_token"]) for _ in range(20)))

    head = tokens_of(answers[0])["refresh_token"]
    assert {tokens_of(answer)["refresh_token"] for answer in answers} == {head}
    deployment.store.script_flush()

    def is_probed() -> bool:
        """Ask again, since the answer before may be remembered for a moment."""
        assert deployment.direct_service.status("/readyz") == 200
        return deployment.store.script_exists(PROBE.sha1) == [True]

    wait_until(is_probed, "the service to look at Redis")
    deployment.store.script_flush()
    assert (await revoke_all(direct_http, tokens["access_token"])).status_code == 200
    assert deployment.find_family(head) is None


@pytest.mark.clause("decided-redis-away")
async def test_dead_idle_connections_fail_no_request(deployment: Deployment, direct_http: httpx2.AsyncClient) -> None:
    refresh_token = tokens_of(await PHONE_APP.log_in(direct_http, ALICE))["refresh_token"]
    await asyncio.gather(*(PHONE_APP.refresh(direct_http, refresh_token) for _ in range(CROWD)))

    deployment.store.client_kill_filter(_type="normal", skipme=True)

    answers = await asyncio.gather(*(PHONE_APP.refresh(direct_http, refresh_token) for _ in range(CROWD)))
    assert {answer.status_code for answer in answers} == {200}
