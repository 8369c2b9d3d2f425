"""The Procfile, run by honcho as a developer of a client would run it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx2

from service.system.process import __file__ as parent_death
from tests.support.clients_and_users import ALICE, TOKEN, login_form
from tests.support.servers import CHECKOUT, free_port, stop
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

HONCHO = Path(sys.executable).parent / "honcho"


def test_honcho_runs_and_ends_the_service_and_redis(tmp_path: Path) -> None:
    web_port, redis_port = free_port(), free_port()
    plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    settings = {"REDIS_PORT": str(redis_port), "TOKEN_SERVICE_DATA_DIR": str(tmp_path)}
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, parent_death, str(os.getpid()), HONCHO, "start", "--no-colour", "--port", str(web_port)],
            cwd=CHECKOUT,
            env=plain | settings,
            stdout=output,
            stderr=output,
        )
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{web_port}", timeout=MAX_WAIT_SECONDS) as http:
            wait_until(lambda: _is_ready(http) or process.poll() is not None, "the service to start")
            assert process.poll() is None, log.read_text()
            form = {"client_id": "phone-app"} | login_form(ALICE, "realm:main role:enduser")
            assert http.post(TOKEN, data=form).json()["token_type"] == "Bearer"
    finally:
        stop(process)
    written = log.read_text()
    assert process.returncode == 128 + signal.SIGTERM
    assert "web.1 stopped (rc=0)" in " ".join(written.split())
    assert "redis.1 stopped (rc=0)" in " ".join(written.split())
    # The service still serves for two seconds, and Redis ends after it.
    _, ending, end = written.partition("shutting down: no longer ready")
    assert ending
    assert '"level":"warning"' not in end
    assert '"level":"error"' not in end


def _is_ready(http: httpx2.Client) -> bool:
    try:
        return http.get("/readyz").status_code == 200
    except httpx2.TransportError:
        return False
