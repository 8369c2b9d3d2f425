"""Redis is killed, frozen or cut off: 503 in time from everything, and back again by itself."""

from __future__ import annotations

import asyncio
import time

import httpx2
import pytest

from service.app import Parts
from service.endpoints.health import REMEMBERED_SECONDS
from service.store.scripts import load_script
from tests.cast import (
    ALICE,
    AUDITOR,
    BOB,
    MADE_SECRET,
    PHONE_APP,
    PHONE_CALLBACK,
    READER,
    WEB_SHOP,
    assert_error,
    revoke_all,
    tokens_of,
    verify,
)
from tests.conftest import make_code
from tests.faults.stage import Stage, client_of, measure
from tests.waiting import until_reachable, until_status

LATEST_SECONDS = 2.0
BACK_SECONDS = 3.0
LONG_ENOUGH_SECONDS = 1.0
"""Past it no worker remembers anything of the registry."""
PATIENCE_SECONDS = 15

PROBE = load_script("probe_store")
OUTAGES = ("killed", "frozen", "cut_off")


@pytest.mark.clause(
    "decided-redis-away",
    "decided-i8-fail-closed",
    "decided-i8-one-deadline",
    "decided-healthz",
    "decided-readyz",
    "decided-i10-outage-is-not-theft",
)
@pytest.mark.parametrize("outage", OUTAGES)
async def test_without_redis_everything_is_503_within_two_seconds_and_works_again_after_it(
    stage: Stage, parts: Parts, outage: str
) -> None:
    async with client_of(stage.beyond if outage == "cut_off" else stage.direct) as http:
        alice = tokens_of(await PHONE_APP.log_in(http, ALICE))
        bob = tokens_of(await WEB_SHOP.log_in(http, BOB))
        code = await make_code(parts)

        with getattr(stage, outage)():
            began = time.monotonic()
            slowest: list[float] = []
            while time.monotonic() < began + LONG_ENOUGH_SECONDS or min(slowest) >= LATEST_SECONDS:
                answers = await asyncio.gather(
                    measure(PHONE_APP.log_in(http, ALICE)),
                    measure(READER.log_in(http, ALICE)),
                    measure(PHONE_APP.refresh(http, alice["refresh_token"])),
                    measure(MADE_SECRET.refresh(http, alice["refresh_token"])),
                    measure(PHONE_APP.exchange(http, code, PHONE_CALLBACK)),
                    measure(WEB_SHOP.revoke(http, bob["refresh_token"])),
                    measure(WEB_SHOP.revoke(http, bob["access_token"])),
                    measure(revoke_all(http, bob["access_token"])),
                    measure(verify(http, bob["access_token"])),
                    measure(AUDITOR.introspect(http, bob["access_token"])),
                    measure(AUDITOR.introspect(http, bob["refresh_token"])),
                )
                may_be_remembered = time.monotonic() < began + REMEMBERED_SECONDS
                alive, ready = await asyncio.gather(measure(http.get("/healthz")), measure(http.get("/readyz")))
                for response, _ in answers:
                    assert_error(response, 503, "temporarily_unavailable")
                    assert int(response.headers["retry-after"]) >= 1
                assert alive[0].status_code == 200
                assert ready[0].status_code == 503 or may_be_remembered
                slowest.append(max(seconds for _, seconds in (*answers, alive, ready)))
                # Other work on the machine may hold one round up, but not all of them.
                assert time.monotonic() < began + PATIENCE_SECONDS

        await until_status(lambda: PHONE_APP.refresh(http, alice["refresh_token"]), 200)
        await until_status(lambda: verify(http, alice["access_token"]), 200)
        assert (await AUDITOR.introspect(http, alice["access_token"])).json()["active"]
        await until_status(lambda: http.get("/readyz"), 200)
        await until_reachable(parts)
        many = await asyncio.gather(*(PHONE_APP.refresh(http, alice["refresh_token"]) for _ in range(100)))
        assert len({tokens_of(answer)["refresh_token"] for answer in many}) == 1
        assert (await PHONE_APP.exchange(http, await make_code(parts), PHONE_CALLBACK)).status_code == 200
        assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
        assert (await WEB_SHOP.revoke(http, bob["refresh_token"])).status_code == 200
        assert not stage.knows_access_token(bob["access_token"])


@pytest.mark.clause("decided-readyz", "decided-i10-outage-is-not-theft")
async def test_a_redis_that_forgets_the_scripts_gets_them_again(stage: Stage, direct: httpx2.AsyncClient) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(direct, ALICE))
    stage.store.script_flush()

    answers = await asyncio.gather(*(PHONE_APP.refresh(direct, tokens["refresh_token"]) for _ in range(20)))

    head = tokens_of(answers[0])["refresh_token"]
    assert {tokens_of(answer)["refresh_token"] for answer in answers} == {head}
    stage.store.script_flush()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while stage.store.script_exists(PROBE.sha1) != [True]:
            # The answer before may be remembered for a moment.
            assert (await direct.get("/readyz")).status_code == 200
    stage.store.script_flush()
    assert (await revoke_all(direct, tokens["access_token"])).status_code == 200
    assert stage.find_family(head) is None


@pytest.mark.clause("decided-redis-away")
async def test_a_flood_during_an_outage_is_answered_in_time_and_does_not_outlast_it(
    stage: Stage, beyond: httpx2.AsyncClient
) -> None:
    """More requests than there are connections to Redis: those that wait for one have the same deadline."""
    tokens = tokens_of(await PHONE_APP.log_in(beyond, ALICE))

    began = time.monotonic()
    slowest = PATIENCE_SECONDS * 1.0
    with stage.cut_off():
        # A hundred at once take time themselves, and other work on the machine may hold up one round, but not all.
        while slowest >= LATEST_SECONDS + 0.5:
            assert time.monotonic() < began + PATIENCE_SECONDS
            answers = await asyncio.gather(
                *(measure(PHONE_APP.refresh(beyond, tokens["refresh_token"])) for _ in range(100))
            )
            assert {response.status_code for response, _ in answers} == {503}
            slowest = max(seconds for _, seconds in answers)

    await until_status(lambda: PHONE_APP.refresh(beyond, tokens["refresh_token"]), 200)


@pytest.mark.clause("decided-redis-away")
async def test_connections_that_died_while_idle_cost_nobody_an_answer(stage: Stage, direct: httpx2.AsyncClient) -> None:
    refresh_token = tokens_of(await PHONE_APP.log_in(direct, ALICE))["refresh_token"]
    await asyncio.gather(*(PHONE_APP.refresh(direct, refresh_token) for _ in range(100)))

    stage.store.client_kill_filter(_type="normal", skipme=True)

    answers = await asyncio.gather(*(PHONE_APP.refresh(direct, refresh_token) for _ in range(100)))
    assert {answer.status_code for answer in answers} == {200}
