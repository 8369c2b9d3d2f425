"""A master behind Sentinel dies, the replica is promoted, and the service follows by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from service.app import build_app
from service.config.settings import load_settings
from service.store.reports.session_count import estimate_session_count
from service.worker import Worker
from tests.cluster.failovers import advance_until_done
from tests.cluster.nodes import running_sentinel
from tests.conftest import SECRET_KEY, SEED, http_client_for, running_lifespan
from tests.support.clients_and_users import ALICE, PHONE_APP, WEB_SHOP, assert_error, revoke_all, tokens_of
from tests.support.loop_time import LoopTime
from tests.support.waiting import until_status, wait_until


@pytest.mark.clause("decided-redis-sentinel", "decided-redis-away", "decided-i8-fail-closed")
async def test_a_service_behind_sentinel_outlives_its_master(tmp_path: Path, loop_time: LoopTime) -> None:
    with running_sentinel(tmp_path) as watched:
        settings = load_settings(
            {
                "REDIS_URL": watched.url_of("service"),
                "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY,
                "TOKEN_SERVICE_SEED_FILE": str(SEED),
                "LOG_LEVEL": "warning",
            }
        )
        worker = Worker(settings, lambda: 0)
        app = build_app(worker)
        async with running_lifespan(app), http_client_for(app) as http:
            assert (await http.get("/readyz")).status_code == 200
            alice = tokens_of(await PHONE_APP.log_in(http, ALICE))
            other = tokens_of(await WEB_SHOP.log_in(http, ALICE))
            assert await estimate_session_count(worker.redis) == (2, 2)
            many = await asyncio.gather(*(PHONE_APP.refresh(http, alice["refresh_token"]) for _ in range(150)))
            assert len({tokens_of(answer)["refresh_token"] for answer in many}) == 1
            with watched.master.connect() as master, watched.replica.connect() as replica:
                wait_until(lambda: replica.dbsize() == master.dbsize(), "the replica to have everything")

            watched.kill_master()
            answer = await advance_until_done(
                loop_time, watched, lambda: PHONE_APP.refresh(http, alice["refresh_token"])
            )
            assert tokens_of(answer)["refresh_token"] == tokens_of(many[0])["refresh_token"]
            with loop_time.running_at(1):
                await until_status(lambda: http.get("/readyz"), 200)  # lookups connect by themselves
            assert (await revoke_all(http, tokens_of(answer)["access_token"])).status_code == 200
            assert_error(await WEB_SHOP.refresh(http, other["refresh_token"]), 400, "invalid_grant")
            assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
