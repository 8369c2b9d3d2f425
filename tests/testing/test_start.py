"""The start and the end of the service for tests."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.support.servers import free_port

PROGRAM = [sys.executable, "-W", "error", "-m", "token_service_testing"]


@contextmanager
def running(*options: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    with subprocess.Popen(
        [*PROGRAM, *options], env=os.environ | variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())


@pytest.mark.parametrize("signal_number", [None, signal.SIGTERM, signal.SIGINT], ids=["stdin", "TERM", "INT"])
def test_end_leaves_no_file_and_no_store(signal_number: signal.Signals | None) -> None:
    with running() as (process, addresses):
        store = Path(urlsplit(addresses["redis_url"]).path)
        assert store.is_socket()
        if signal_number is not None:
            process.send_signal(signal_number)
            process.wait()

    assert not store.parent.exists()


def test_options_are_a_port_and_a_seed(tmp_path: Path) -> None:
    seed, port = tmp_path / "seed.yaml", free_port()
    seed.write_text("clients:\n- {client_id: own, client_name: Own, scope: realm:main role:admin, grant_types: []}\n")
    order = {"username": "root@example.com", "client_id": "own", "scope": "realm:main role:admin"}

    with running("--seed", str(seed), "--port", str(port)) as (_, addresses):
        assert addresses["url"] == f"http://127.0.0.1:{port}"
        assert httpx2.post(f"{addresses['url']}/_test/tokens", json=order).json()["scope"] == order["scope"]


def test_no_variable_is_a_setting(tmp_path: Path) -> None:
    variables = {"REDIS_URL": "redis://127.0.0.1:1", "TOKEN_SERVICE_ACCESS_TOKEN_TTL": "1", "PORT": "x"}
    with running(**variables, TOKEN_SERVICE_DATA_DIR=str(tmp_path)) as (_, addresses):
        order = {"username": "alice@example.com", "client_id": "phone-app"}
        assert httpx2.post(f"{addresses['url']}/_test/tokens", json=order).json()["expires_in"] == 600

    assert not list(tmp_path.iterdir())


def test_mistake_in_the_seed_ends_the_start(tmp_path: Path) -> None:
    seed = tmp_path / "seed.yaml"
    seed.write_text("clients:\n- {client_id: own, scopes: x}\n")

    done = subprocess.run([*PROGRAM, "--seed", str(seed)], capture_output=True, text=True, stdin=subprocess.DEVNULL)

    assert (done.returncode, done.stdout) == (2, "")
    assert f"errors in the seed file {seed}" in done.stderr
    assert "clients[0].scopes" in done.stderr
