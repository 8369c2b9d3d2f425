"""The libraries that a command of the console imports. A list of clients imported 40 MiB of them in 0.2 s."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import environment_of
from tests.support.servers import CHECKOUT, RedisServer

HEAVY = {
    *("argon2", "cryptography", "http.client", "httpcore2", "jinja2", "joserfc", "passlib"),
    *("prometheus_client", "python_multipart", "redis", "starlette", "uvicorn", "uvloop", "yaml"),
}
"""Libraries that no command imports to print its list without a terminal."""

RUN = f"""
import contextlib, sys
from service.admin.__main__ import main
with contextlib.suppress(SystemExit):
    main()
print(*sorted({HEAVY} & set(sys.modules)), sep="\\n", file=sys.stderr)
"""


def list_heavy_imports(environment: dict[str, str], *words: str) -> set[str]:
    """Return the libraries of HEAVY that a command imports in a process of its own."""
    command = [sys.executable, "-P", "-c", RUN, *words]
    variables = environment | {"PYTHONPATH": str(CHECKOUT)}
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return set(ran.stderr.split())


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("client", "list"),
        ("user", "show", "alice@example.com"),
        ("session", "list", "--user", "alice@example.com", "--json"),
        ("client", "create", "--help"),
        ("user", "set-password", "--help"),
    ],
    ids=" ".join,
)
def test_a_command_imports_nothing_heavy(own_redis: RedisServer, words: tuple[str, ...]) -> None:
    assert list_heavy_imports(environment_of(own_redis), *words) == set()


def test_the_watch_on_imports_sees_them(own_redis: RedisServer, tmp_path: Path) -> None:
    seed = tmp_path / "seed.yaml"
    seed.write_text("clients: [{client_id: shop}]\n")

    assert {"yaml", "argon2", "passlib"} <= list_heavy_imports(environment_of(own_redis), "seed", str(seed))
