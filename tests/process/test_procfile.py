"""scripts/procfile in a checkout of links, with its own service and with replacements of install and serve."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import CHECKOUT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name in ("service", "examples", ".venv"):
        (tmp_path / name).symlink_to(CHECKOUT / name)
    (scripts / "procfile").write_bytes((CHECKOUT / "scripts" / "procfile").read_bytes())
    (scripts / "install").write_text("#!/bin/sh\n")
    (scripts / "serve").write_text('#!/bin/sh\necho "$TOKEN_SERVICE_SEED_FILE"\n')
    for script in scripts.iterdir():
        script.chmod(0o755)
    return tmp_path


@pytest.fixture
def redis_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def run_web(checkout: Path, redis_port: int, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "REDIS_PORT": str(redis_port), **variables}
    command = [str(checkout / "scripts" / "procfile"), "web"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.clause("decided-example-seed-not-public")
def test_the_example_seed_is_refused_at_a_public_address(checkout: Path, redis_port: int) -> None:
    ended = run_web(checkout, redis_port, HOST="0.0.0.0")

    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("TOKEN_SERVICE_SEED_FILE: not set: expected your own seed file, because HOST '")


def test_the_example_seed_is_the_default_on_this_machine(checkout: Path, redis_port: int) -> None:
    ended = run_web(checkout, redis_port)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{checkout / 'examples' / 'seed.yaml'}\n", "")
