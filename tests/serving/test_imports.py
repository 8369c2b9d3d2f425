"""The libraries that a worker imports only when it needs them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import SECRET_KEY
from tests.support.servers import CHECKOUT

HEAVY = {"cryptography", "httpcore2", "joserfc", "redis"}
"""Libraries for sealed texts, identity providers, Sentinels and the console. Together they take 25 MiB."""

VARIABLES = {"REDIS_URL": "redis://127.0.0.1:1", "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY}
WORKER = f"""
import asyncio
from service.app import build_app
from service.config.settings import load_settings
from service.worker import Worker

async def make() -> Worker:
    worker = Worker(load_settings({VARIABLES}))
    build_app(worker)
    return worker

worker = asyncio.run(make())
"""
LOAD_REALMS = "asyncio.run(worker.external_realms.load_clients())\n"
SEAL = "worker.keyring.seal('login form', b'x')\n"


def list_heavy_imports(program: str) -> set[str]:
    """Return the libraries of HEAVY that a process imports to run the program."""
    program = f"import sys, service.serving.supervisor\n{program}\nprint(*{HEAVY} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


@pytest.mark.parametrize(
    ("steps", "imported"),
    [
        pytest.param("", set(), id="a worker"),
        pytest.param(SEAL, {"cryptography"}, id="a login form"),
        pytest.param(LOAD_REALMS, {"cryptography", "httpcore2", "joserfc"}, id="an identity provider"),
    ],
)
def test_worker_imports_only_needed_libraries(steps: str, imported: set[str]) -> None:
    assert list_heavy_imports(WORKER + steps) == imported
