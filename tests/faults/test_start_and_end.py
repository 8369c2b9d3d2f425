"""A service that is started before its Redis, and one that is told to end amid requests."""

import asyncio
import signal
from pathlib import Path

import pytest

from service.store.client import load_script
from tests.conftest import environment_of
from tests.faults.deployment import Deployment, call_of, http_client_for
from tests.support.clients_and_users import ALICE, PHONE_APP, assert_error, tokens_of
from tests.support.servers import RedisServer, free_port, running_service, start_redis, stop
from tests.support.waiting import until, wait_until

SPEND = load_script("sessions/spend_refresh_token")
REQUESTS = 5


@pytest.mark.clause("decided-readyz", "decided-healthz", "decided-i8-fail-closed")
async def test_service_seeds_a_redis_that_starts_later(tmp_path: Path) -> None:
    to_come = RedisServer(None, tmp_path, free_port())  # type: ignore[arg-type]
    with running_service(tmp_path, environment_of(to_come), wait_for="/healthz") as service:
        assert service.status("/readyz") == 503
        async with http_client_for(service) as http:
            assert_error(await PHONE_APP.log_in(http, ALICE), 503, "temporarily_unavailable")

            server = start_redis(tmp_path, port=to_come.port)
            try:
                wait_until(lambda: service.status("/readyz") == 200, "the service to become ready")
                assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
            finally:
                stop(server.process)


@pytest.mark.clause("decided-clean-stop")
async def test_requests_that_were_under_way_at_sigterm_are_answered(deployment: Deployment, tmp_path: Path) -> None:
    with running_service(tmp_path, deployment.environment(REDIS_URL=deployment.proxy.url, LOG_LEVEL="info")) as service:
        async with http_client_for(service) as http:
            refresh_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]
            calls = deployment.count_calls("evalsha")
            deployment.proxy.keep_back = call_of("sessions/spend_refresh_token")
            requests = [asyncio.create_task(PHONE_APP.refresh(http, refresh_token)) for _ in range(REQUESTS)]
            await until(lambda: deployment.count_calls("evalsha") >= calls + REQUESTS)

            service.process.send_signal(signal.SIGTERM)
            await until(
                lambda: "shutting down: no longer ready" in service.log.read_text(), "the service to begin to end"
            )
            deployment.proxy.deliver()
            answers = await asyncio.gather(*requests)
            # A second signal must not be needed.
            await until(lambda: service.process.poll() is not None)

    # On a slow machine the waits for Redis may reach their limit. Every request is answered.
    served = [answer for answer in answers if answer.status_code != 503]
    assert len({tokens_of(answer)["refresh_token"] for answer in served}) <= 1
    assert service.process.returncode == 0
