"""A local deployment without containers: Redis, two workers, and nginx with TLS in front.

It uses the configurations for production: redis.conf through redis-start, and nginx.conf with other ports and folders.
The certificate is created at the start. All files are in a folder that only its owner can read.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import ipaddress
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from service.config.settings import EXAMPLE_SEED
from service.embedded.binary import StoreFailed, get_server_binary
from service.serving.banner import EXAMPLE_LOGIN
from service.system.process import __file__ as parent_death

__all__ = [
    "Stack",
    "find_nginx",
    "main",
    "make_folder",
    "nginx_command",
    "running",
    "write_certificate",
    "write_nginx_configuration",
]

CHECKOUT = Path(__file__).resolve().parent.parent
DEPLOYMENT = CHECKOUT / "deployment"
SUCCESS, FAILURE = 0, 1
HOST = "127.0.0.1"
# Debian installs servers in folders that are only on root's PATH.
SEARCH_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))

START_SECONDS = 60
POLL_SECONDS = 0.02
CERTIFICATE_DAYS = 30
# Each limit is a little longer than the time that the process itself allows for pending requests.
NGINX_SECONDS, SERVICE_SECONDS, REDIS_SECONDS = 25, 30, 20


class StackFailed(Exception):
    """A failure of the stack. The message is printed to stderr without a traceback."""


class StopRequested(Exception):
    """The end of the stack by SIGTERM or Ctrl-C."""


@dataclass(frozen=True)
class Stack:
    folder: Path
    https_port: int
    http_port: int
    service_port: int
    redis_port: int

    @property
    def url(self) -> str:
        return f"https://localhost:{self.https_port}"

    @property
    def certificate(self) -> Path:
        return self.folder / "tls" / "certificate.pem"


def main(arguments: Sequence[str]) -> int:
    """Run until SIGTERM, Ctrl-C or the end of one of the three processes. Returns the exit status."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _request_stop)
    try:
        _run(_parse(arguments))
    except StopRequested:
        return SUCCESS
    except (StackFailed, StoreFailed) as failure:
        sys.stderr.write(f"scripts/stack: {failure}\n")
    return FAILURE


def _parse(arguments: Sequence[str]) -> Stack:
    parser = argparse.ArgumentParser(prog="scripts/stack", description="Redis, two workers, and nginx with TLS.")
    for name, port in {"https": 8443, "http": 8080, "service": 8000, "redis": 6379}.items():
        variable = f"STACK_{name.upper()}_PORT"
        default = os.environ.get(variable) or str(port)
        parser.add_argument(f"--{name}-port", type=int, default=default, help=f"default: ${variable}, or {port}")
    default_folder = CHECKOUT / ".data" / "stack"
    parser.add_argument(
        "--folder", type=Path, default=default_folder, help="folder for all files (default: %(default)s)"
    )
    return Stack(**vars(parser.parse_args(arguments)))


def _request_stop(_number: int, _frame: FrameType | None) -> None:
    # A second signal must not interrupt the shutdown.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    raise StopRequested


def _run(stack: Stack) -> None:
    nginx = find_nginx()
    _check_ports(stack)
    make_folder(stack.folder)
    write_certificate(stack)
    write_nginx_configuration(stack)
    # All start at the same time. They end in reverse order, so no process sends requests to one that has ended.
    with (
        running("Redis", _redis_command(stack), _redis_environment(stack), signal.SIGTERM, REDIS_SECONDS) as redis,
        running(
            "the service", _service_command(), _service_environment(stack), signal.SIGTERM, SERVICE_SECONDS
        ) as service,
        running("nginx", nginx_command(nginx, stack), os.environ, signal.SIGQUIT, NGINX_SECONDS) as proxy,
    ):
        processes = (redis, service, proxy)
        ready = (lambda: _is_listening(stack.https_port), lambda: _is_ready(stack.service_port))
        _wait_until(ready, processes)
        _print_request(stack)
        while True:
            _check_processes(processes)
            time.sleep(POLL_SECONDS)


def _check_ports(stack: Stack) -> None:
    """Raise StackFailed if another program listens on a port. It could be taken for a process of the stack."""
    for name in ("https", "http", "service", "redis"):
        port = getattr(stack, f"{name}_port")
        if _is_listening(port):
            raise StackFailed(f"port {port} is in use; --{name}-port takes another")


def find_nginx() -> str:
    nginx = shutil.which("nginx", path=SEARCH_PATH)
    if nginx is None:
        raise StackFailed("nginx is not installed; on Debian: sudo apt-get install nginx")
    return nginx


# Processes


@dataclass(frozen=True)
class _Process:
    name: str
    popen: subprocess.Popen[bytes]

    def check(self) -> None:
        if self.popen.poll() is not None:
            raise StackFailed(f"{self.name} has ended, with status {self.popen.returncode}")


def _check_processes(processes: Iterable[_Process]) -> None:
    for process in processes:
        process.check()


def _wait_until(ready: Sequence[Callable[[], bool]], processes: Sequence[_Process]) -> None:
    """Wait until everything is ready. Raises StackFailed if a process has ended or the time is over.

    The processes are also checked at the end, since another program may listen on the same port.
    """
    deadline = time.monotonic() + START_SECONDS
    while not all(is_ready() for is_ready in ready):
        _check_processes(processes)
        if time.monotonic() > deadline:
            raise StackFailed(f"the processes are not ready after {START_SECONDS} seconds")
        time.sleep(POLL_SECONDS)
    _check_processes(processes)


@contextlib.contextmanager
def running(
    name: str, command: Sequence[str], environment: Mapping[str, str], number: signal.Signals, seconds: float
) -> Iterator[_Process]:
    """Run a command and stop it with a signal at the end.

    The command has its own process group, so that Ctrl-C does not end all processes at the same time. It also ends if
    this process is killed.
    """
    popen = subprocess.Popen(
        [sys.executable, "-I", "-S", parent_death, str(os.getpid()), *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        yield _Process(name, popen)
    finally:
        popen.send_signal(number)
        try:
            popen.wait(seconds)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()
        # nginx may leave a worker process if it is stopped while it starts. Usually the group is empty.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGKILL)


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _is_ready(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=START_SECONDS) as connection:
            connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
            return connection.recv(100).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


# Commands and environments


def _redis_command(stack: Stack) -> Sequence[str]:
    options = ("--port", str(stack.redis_port), "--dir", str(stack.folder / "redis"))
    return (str(DEPLOYMENT / "redis-start"), *options)


def _redis_environment(stack: Stack) -> Mapping[str, str]:
    password_file = str(stack.folder / "redis_password")
    return os.environ | {"REDIS_SERVER": get_server_binary(), "REDIS_PASSWORD_FILE": password_file}


def _service_command() -> Sequence[str]:
    return (sys.executable, "-P", "-m", "service")


def _service_environment(stack: Stack) -> Mapping[str, str]:
    """Return the caller's environment with defaults, and with the settings that the stack requires."""
    password = (stack.folder / "redis_password").read_text()
    return {
        "TOKEN_SERVICE_SECRET_KEY": (stack.folder / "secret_key").read_text(),
        "TOKEN_SERVICE_SEED_FILE": str(EXAMPLE_SEED),
        "WEB_CONCURRENCY": "2",
        **os.environ,
        "HOST": HOST,
        "PORT": str(stack.service_port),
        "PYTHONPATH": str(CHECKOUT),
        "REDIS_URL": f"redis://:{password}@{HOST}:{stack.redis_port}/0",
        "TOKEN_SERVICE_BASE_URL": stack.url,
        "TOKEN_SERVICE_TRUSTED_PROXIES": HOST,
    }


def nginx_command(nginx: str, stack: Stack) -> Sequence[str]:
    configuration = str(stack.folder / "nginx.conf")
    return (nginx, "-e", "stderr", "-p", str(stack.folder), "-c", configuration, "-g", "daemon off;")


# Files in the folder


def make_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    for name in ("redis", "tls"):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    for name in ("redis_password", "secret_key"):
        file = folder / name
        if not file.exists():
            _write_private(file, secrets.token_hex(32).encode())


def _write_private(file: Path, content: bytes) -> None:
    with open(file, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as opened:
        opened.write(content)


def write_nginx_configuration(stack: Stack) -> None:
    """Write nginx.conf with the ports and the folder of the stack, so that nginx needs no root privileges."""
    folder = f"{stack.folder}/"
    changes = {
        "listen 80 ": f"listen {HOST}:{stack.http_port} ",
        "listen 443 ": f"listen {HOST}:{stack.https_port} ",
        "https://$host$": f"https://$host:{stack.https_port}$",
        "pid /run/": f"pid {folder}",
        "/var/log/nginx/": folder,
        "http {\n": "http {\n" + "".join(f"    {kind}_temp_path {folder}temp-{kind};\n" for kind in _TEMPORARY_FOLDERS),
    }
    text = (DEPLOYMENT / "nginx.conf").read_text()
    for shipped, replacement in changes.items():
        text = text.replace(shipped, replacement)
    (stack.folder / "nginx.conf").write_text(text)
    instances = (DEPLOYMENT / "instances.conf").read_text()
    (stack.folder / "instances.conf").write_text(instances.replace(":8000 ", f":{stack.service_port} "))


# nginx creates these folders at its start, even if it writes no files there. Debian's defaults belong to root.
_TEMPORARY_FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def write_certificate(stack: Stack) -> None:
    """Write a self-signed certificate for localhost, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=CERTIFICATE_DAYS))
        .add_extension(names, critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    _write_private(stack.folder / "tls" / "key.pem", text)
    stack.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _print_request(stack: Stack) -> None:
    command = ["curl", "-sS", "--cacert", str(stack.certificate), f"{stack.url}/oauth2/v1/token"]
    for name, value in EXAMPLE_LOGIN.items():
        command += ["--data-urlencode", f"{name}={value}"]
    sys.stdout.write(f"{shlex.join(command)}\n")
    sys.stdout.flush()
    sys.stderr.write(
        f"Ready at {stack.url}/ (its certificate is {stack.certificate}). Ctrl-C stops it. The console:\n"
        f'REDIS_URL="redis://:$(cat {stack.folder}/redis_password)@{HOST}:{stack.redis_port}/0" '
        f"TOKEN_SERVICE_SECRET_KEY_FILE={stack.folder}/secret_key ./scripts/admin --help\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
