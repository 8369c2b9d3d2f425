"""scripts/stack as a process of the tests, and HTTP clients of what it starts."""

import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from service.system.process import __file__ as parent_death
from tests.support.left_out import get_program
from tests.support.servers import CHECKOUT, free_port, stop
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

STACK = (sys.executable, "-P", "-m", "deployment.stack")


@dataclass(frozen=True)
class RunningStack:
    process: subprocess.Popen[bytes]
    folder: Path
    https_port: int
    http_port: int
    service_port: int
    redis_port: int

    @property
    def url(self) -> str:
        return f"https://localhost:{self.https_port}"

    @property
    def curl_line(self) -> str:
        return (self.folder / "stdout").read_text()

    @property
    def log(self) -> str:
        return (self.folder / "stderr").read_text()

    def trust(self) -> ssl.SSLContext:
        """Return a TLS context that trusts the stack's certificate, as strict as newer Pythons are by default."""
        context = ssl.create_default_context(cafile=str(self.folder / "stack" / "tls" / "certificate.pem"))
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    def client(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, verify=self.trust(), timeout=MAX_WAIT_SECONDS)

    def written(self, name: str) -> str:
        return (self.folder / "stack" / name).read_text()

    def listens(self, port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def running_stack(folder: Path) -> Iterator[RunningStack]:
    get_program("nginx")
    ports = {f"{name}_port": free_port() for name in ("https", "http", "service", "redis")}
    arguments = [word for name, port in ports.items() for word in (f"--{name.replace('_', '-')}", str(port))]
    plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with (folder / "stdout").open("wb") as output, (folder / "stderr").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                parent_death,
                str(os.getpid()),
                *STACK,
                "--folder",
                folder / "stack",
                *arguments,
            ],
            env=plain | {"PYTHONPATH": str(CHECKOUT)},
            stdout=output,
            stderr=log,
        )
    stack = RunningStack(process, folder, **ports)
    try:
        wait_until(lambda: stack.curl_line.endswith("\n") or process.poll() is not None, "the stack to start")
        assert process.poll() is None, stack.log
        yield stack
    finally:
        stop(process, signal.SIGINT)
