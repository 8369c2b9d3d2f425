"""The deployment without containers, for a try: Redis, two workers, and nginx with TLS in front.

What runs is what is shipped: redis.conf by redis-start, and nginx.conf but for the ports and folders. The certificate
is made on the spot, and lies with everything else in a folder that only its owner may enter.
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
from service.embedded.binary import NoServerBinary, get_server_binary
from service.serving.banner import EXAMPLE_LOGIN
from service.system import parent_death

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
DONE, FAILED = 0, 1
HOST = "127.0.0.1"
# Debian keeps servers where only root looks for programs.
SEARCHED = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))

START_SECONDS = 60
PAUSE_SECONDS = 0.02
CERTIFICATE_DAYS = 30
# A little more than each of them gives itself for what is under way.
NGINX_SECONDS, SERVICE_SECONDS, REDIS_SECONDS = 25, 30, 20


class StackFailed(Exception):
    """The message is for stderr, as it is."""


class Ended(Exception):
    """SIGTERM or ctrl-C."""


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
    """Runs until SIGTERM or ctrl-C, or until one of the three ends by itself."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    try:
        _run(_parse(arguments))
    except Ended:
        return DONE
    except (StackFailed, NoServerBinary) as failure:
        sys.stderr.write(f"scripts/stack: {failure}\n")
    return FAILED


def _parse(arguments: Sequence[str]) -> Stack:
    parser = argparse.ArgumentParser(prog="scripts/stack", description="Redis, two workers, and nginx with TLS.")
    for name, port in {"https": 8443, "http": 8080, "service": 8000, "redis": 6379}.items():
        variable = f"STACK_{name.upper()}_PORT"
        default = os.environ.get(variable) or str(port)
        parser.add_argument(f"--{name}-port", type=int, default=default, help=f"default: ${variable}, or {port}")
    default_folder = CHECKOUT / ".data" / "stack"
    parser.add_argument("--folder", type=Path, default=default_folder, help="where everything lies")
    return Stack(**vars(parser.parse_args(arguments)))


def _end(_number: int, _frame: FrameType | None) -> None:
    # A second one must not leave half of it behind.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    raise Ended


def _run(stack: Stack) -> None:
    nginx = find_nginx()
    make_folder(stack.folder)
    write_certificate(stack)
    write_nginx_configuration(stack)
    # Started at once, and ended in the other order: nobody is asked who has gone already.
    with (
        running("Redis", _redis_command(stack), _redis_environment(stack), signal.SIGTERM, REDIS_SECONDS) as redis,
        running(
            "the service", _service_command(), _service_environment(stack), signal.SIGTERM, SERVICE_SECONDS
        ) as service,
        running("nginx", nginx_command(nginx, stack), os.environ, signal.SIGQUIT, NGINX_SECONDS) as proxy,
    ):
        processes = (redis, service, proxy)
        ready = (lambda: _listens(stack.https_port), lambda: _answers(stack.service_port))
        _wait_until(ready, processes)
        _greet(stack)
        while True:
            _check(processes)
            time.sleep(PAUSE_SECONDS)


def find_nginx() -> str:
    nginx = shutil.which("nginx", path=SEARCHED)
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


def _check(processes: Iterable[_Process]) -> None:
    for process in processes:
        process.check()


def _wait_until(ready: Sequence[Callable[[], bool]], processes: Sequence[_Process]) -> None:
    """Somebody else's server may answer on a port that ours did not get; then ours has ended."""
    deadline = time.monotonic() + START_SECONDS
    while not all(is_so() for is_so in ready):
        _check(processes)
        if time.monotonic() > deadline:
            raise StackFailed(f"not ready after {START_SECONDS} seconds")
        time.sleep(PAUSE_SECONDS)
    _check(processes)


@contextlib.contextmanager
def running(
    name: str, command: Sequence[str], environment: Mapping[str, str], number: signal.Signals, seconds: float
) -> Iterator[_Process]:
    """In a process group of its own, since ctrl-C would end all at once, and not even after kill -9 without us."""
    popen = subprocess.Popen(
        [sys.executable, "-I", "-S", str(parent_death.__file__), str(os.getpid()), *command],
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
        # An nginx that is told to end while it starts may leave a worker. Usually nobody of the group is left.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGKILL)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=START_SECONDS) as connection:
            connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
            return connection.recv(100).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


# What runs


def _redis_command(stack: Stack) -> Sequence[str]:
    options = ("--port", str(stack.redis_port), "--dir", str(stack.folder / "redis"))
    return (str(DEPLOYMENT / "redis-start"), *options)


def _redis_environment(stack: Stack) -> Mapping[str, str]:
    password_file = str(stack.folder / "redis_password")
    return os.environ | {"REDIS_SERVER": get_server_binary(), "REDIS_PASSWORD_FILE": password_file}


def _service_command() -> Sequence[str]:
    return (sys.executable, "-P", "-m", "service")


def _service_environment(stack: Stack) -> Mapping[str, str]:
    """Settings of the caller's own count, but for those that make the stack."""
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


# What lies in the folder


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
    """The shipped one, which may be started by anybody and on any ports."""
    folder = f"{stack.folder}/"
    changes = {
        "listen 80 ": f"listen {HOST}:{stack.http_port} ",
        "listen 443 ": f"listen {HOST}:{stack.https_port} ",
        "https://$host$": f"https://$host:{stack.https_port}$",
        "pid /run/": f"pid {folder}",
        "/var/log/nginx/": folder,
        "http {\n": "http {\n" + "".join(f"    {kind}_temp_path {folder}temp-{kind};\n" for kind in _TEMPORARY),
    }
    text = (DEPLOYMENT / "nginx.conf").read_text()
    for shipped, here in changes.items():
        text = text.replace(shipped, here)
    (stack.folder / "nginx.conf").write_text(text)
    instances = (DEPLOYMENT / "instances.conf").read_text()
    (stack.folder / "instances.conf").write_text(instances.replace(":8000 ", f":{stack.service_port} "))


# Debian's are root's. Nothing is written there, but nginx makes them all.
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def write_certificate(stack: Stack) -> None:
    """Self-signed, for this machine's names only."""
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


def _greet(stack: Stack) -> None:
    words = ["curl", "-sS", "--cacert", str(stack.certificate), f"{stack.url}/oauth2/v1/token"]
    for name, value in EXAMPLE_LOGIN.items():
        words += ["--data-urlencode", f"{name}={value}"]
    sys.stdout.write(f"{shlex.join(words)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
