"""The example API as a process of its own under uvicorn, beside the real service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from service.system.parent_death import __file__ as parent_death
from tests.conftest import AnyRedis
from tests.support.clients_and_users import ALICE, PHONE_APP, assert_error, bearer, tokens_of
from tests.support.servers import CHECKOUT, free_port, stop
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until


@pytest.fixture
def api(redis_server: AnyRedis, gateway_library: Path, tmp_path: Path) -> Iterator[str]:
    """The URL of the running API, which must end by itself when it is told to."""
    port = free_port()
    log = tmp_path / "api.log"
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "--factory",
        "--app-dir",
        "examples",
        "api:make_api",
        "--port",
        str(port),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, parent_death, str(os.getpid()), *command],
            cwd=CHECKOUT,
            env=os.environ | {"REDIS_URL": redis_server.url, "PYTHONPATH": str(gateway_library)},
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(lambda: "Uvicorn running" in log.read_text() or process.poll() is not None, "the API")
        assert process.poll() is None, log.read_text()
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        process.wait(MAX_WAIT_SECONDS)
        assert "Application shutdown complete" in log.read_text()
    finally:
        stop(process)


@pytest.mark.clause("spec-4.5-bearer-header")
async def test_the_example_api_takes_the_tokens_of_the_service(http: httpx2.AsyncClient, api: str) -> None:
    headers = bearer(tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"])

    async with httpx2.AsyncClient(base_url=api, verify=False, timeout=MAX_WAIT_SECONDS) as client:
        assert (await client.get("/")).json() == {"hello": "everybody"}
        assert (await client.get("/me", headers=headers)).json()["username"] == ALICE.username
        assert_error(await client.get("/partners", headers=headers), 403, "insufficient_scope")
        assert_error(await client.get("/me", headers=bearer("x")), 401, "invalid_token")

        anonymous = await client.head("/me")
        assert (anonymous.status_code, anonymous.content) == (401, b"")
        assert anonymous.headers["www-authenticate"] == 'Bearer realm="token-service"'
