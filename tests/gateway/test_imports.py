"""The imports of the gateway library: what an API needs, and nothing of the rest of the service."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.servers import CHECKOUT

HEAVY = (
    "uvicorn",
    "jinja2",
    "passlib",
    "argon2",
    "cryptography",
    "structlog",
    "yaml",
    "click",
    "prometheus_client",
    "redis",
)


def loaded_with(module: str) -> set[str]:
    """All modules of a fresh interpreter that imports this one."""
    command = [sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"]
    return set(subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("service.gateway", (*HEAVY, "starlette", "python_multipart")),
        ("service.gateway.middleware", (*HEAVY, "starlette", "python_multipart")),
        ("service.gateway.authentication", HEAVY),
        ("service.gateway.fastapi_guard", HEAVY),
    ],
)
def test_the_gateway_loads_neither_the_service_nor_what_only_the_service_needs(
    module: str, forbidden: tuple[str, ...]
) -> None:
    loaded = loaded_with(module)

    assert module in loaded
    assert not loaded & {
        *forbidden,
        "service.app",
        "service.config.settings",
        "service.web",
        "service.crypto.keyring",
    }
