"""Secrets from files reach every process: the supervisor, its workers and the console."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.conftest import environment_of
from tests.support.clients_and_users import ALICE, TOKEN, login_form
from tests.support.servers import CHECKOUT, RedisServer, running_service


@pytest.mark.clause("decided-secrets-from-files")
def test_service_workers_and_console_read_their_secrets_from_files(tmp_path: Path, redis_server: RedisServer) -> None:
    environment = environment_of(redis_server, WEB_CONCURRENCY="2")
    for variable in ("REDIS_URL", "TOKEN_SERVICE_SECRET_KEY"):
        file = tmp_path / variable
        file.write_text(environment.pop(variable) + "\n")
        environment[f"{variable}_FILE"] = str(file)

    with running_service(tmp_path, environment) as service:
        form = {"client_id": "phone-app"} | login_form(ALICE, "realm:main role:enduser")
        response = httpx2.post(f"http://127.0.0.1:{service.port}{TOKEN}", data=form)
        console = [sys.executable, "-m", "service.admin", "client", "list"]
        listed = subprocess.run(console, cwd=CHECKOUT, env=environment, capture_output=True, text=True)

    assert response.status_code == 200
    assert "phone-app" in listed.stdout, listed.stderr
