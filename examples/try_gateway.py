"""Send unusual requests to a gateway, and print what the API behind it received.

The rule: whatever the API reads in a request, the gateway must have asked for at least what this reading needs. This
program takes the place of the API. docs/how-to/gateway-proxies.md explains how to use it.
For nginx, `X-Auth-Foo` is expected. For HAProxy, first raise its limit of 200 requests a second.
"""

from __future__ import annotations

import argparse
import posixpath
import re
import socket
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from io import BufferedIOBase
from urllib.parse import unquote

from examples.gateway_requests import CASES

MAX_WAIT_SECONDS = 60.0
IDENTITY = ("x-auth-subject", "x-auth-realm", "x-auth-user", "x-auth-client", "x-auth-scope", "x-auth-expires-in")


@dataclass(frozen=True)
class Received:
    """A request as the API received it."""

    method: str
    target: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    def values_of(self, name: str) -> list[str]:
        return [value for given, value in self.headers if given.lower() == name]

    def __str__(self) -> str:
        told = [f"{name}: {value}" for name, value in self.headers if re.match("(?i)x.auth|upgrade", name)]
        return " | ".join([f"{self.method} {self.target}", *told]).encode("unicode_escape").decode("ascii")


class RecordingAPI:
    """An API that keeps each request in `received`, byte by byte, and answers 200.

    If `takes_h2c` is true, it switches to HTTP/2 like a server that takes h2c. `received` then has the caller's bytes.
    """

    def __init__(self, port: int, *, takes_h2c: bool = False) -> None:
        self.port = port
        self.takes_h2c = takes_h2c
        self.received: list[Received] = []

    @contextmanager
    def running(self) -> Iterator[RecordingAPI]:
        api = self

        class Connection(socketserver.StreamRequestHandler):
            disable_nagle_algorithm = True

            def handle(self) -> None:
                with suppress(OSError, ValueError):
                    while request := _read_request(self.rfile):
                        api.received.append(request)
                        if api.takes_h2c and "h2c" in ",".join(request.values_of("upgrade")):
                            self.wfile.write(b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
                            api.received.append(Received("PRI", "*", [], self.rfile.read1()))
                            return
                        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True
            request_queue_size = 128

        with Server(("127.0.0.1", self.port), Connection) as server:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            yield self
            server.shutdown()


def _read_request(stream: BufferedIOBase) -> Received | None:
    """Return the next request, or None at the end of the connection."""
    lines = []
    while (line := stream.readline()).strip(b"\r\n"):
        lines.append(line.decode("latin-1").rstrip("\r\n"))
    if not lines:
        return None
    method, _, rest = lines[0].partition(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])]
    received = Received(method, rest.rpartition(" ")[0], headers)
    return replace(received, body=_read_body(stream, received))


def _read_body(stream: BufferedIOBase, received: Received) -> bytes:
    """Raise ValueError if the connection ends within the body."""
    if not received.values_of("transfer-encoding"):
        length = int((received.values_of("content-length") or ["0"])[0])
        body = stream.read(length)
        if len(body) < length:
            raise ValueError("the body is incomplete")
        return body
    body = b""
    while size := int(stream.readline().partition(b";")[0], 16):
        body += stream.read(size)
        stream.readline()
    while stream.readline().strip(b"\r\n"):
        pass  # a trailer
    return body


def readings_of(target: str) -> list[str]:
    """Return the path as an API may read it: raw, decoded, normalised."""
    raw = re.sub("^(?i:[a-z][a-z0-9+.-]*)://[^/?#]*", "", target).partition("?")[0] or "/"
    decoded = unquote(raw, "latin-1")
    # Parsers of URLs drop tabs and line ends.
    slashes = re.sub(r"[/\\]+", "/", re.sub("[\t\r\n]", "", re.split("[?#]", decoded)[0]))
    without_parameters = re.sub(r"/(\.\.?);[^/]*", r"/\1", slashes)
    is_folder = re.search(r"/\.{0,2}$", without_parameters)
    return [raw, decoded, posixpath.normpath(without_parameters).rstrip("/") + ("/" if is_folder else "")]


def faults_of(received: Received, *, websocket: bool = False) -> list[str]:
    """Return what the gateway did wrong. Adapt the paths to your own rules."""
    faults = []
    identity = [(name, value) for name, value in received.headers if re.match("(?i)x[^a-z0-9]auth", name)]
    for name, value in identity:
        if name.lower() not in IDENTITY or len(received.values_of(name.lower())) > 1 or "forged" in value:
            faults.append(f"{name} comes from the caller")
    scope = " ".join(received.values_of("x-auth-scope")).split()
    for path in readings_of(received.target):
        if not received.values_of("x-auth-subject") and not path.startswith("/public/"):
            faults.append(f"{path} needs a token")
        elif path.startswith("/reports/") and "role:partner" not in scope:
            faults.append(f"{path} needs role:partner")
    if not received.target.startswith("/") and received.target != "*":
        faults.append("the target names a host, which servers may read in two ways")
    if received.method == "CONNECT":
        faults.append("CONNECT opens a tunnel")
    if received.values_of("authorization"):
        faults.append("the API could use the token elsewhere")
    lengths = received.values_of("content-length")
    encodings = received.values_of("transfer-encoding")
    if len(lengths + encodings) > 1:
        faults.append("the length of the body is ambiguous")
    upgrade = received.values_of("upgrade")
    is_handshake = received.method == "GET" and upgrade == ["websocket"] and not lengths + encodings
    if upgrade and not (websocket and is_handshake):
        faults.append("Upgrade comes from the caller")
    if re.search("(?i)x.auth|forwarded", ",".join(received.values_of("connection"))):
        faults.append("Connection comes from the caller")
    return faults


def send_http1(port: int, request: bytes) -> int:
    """Return the status of the first answer, or 0 if there is none, after the last answer of the connection."""
    answer = b""
    with (
        socket.create_connection(("127.0.0.1", port), MAX_WAIT_SECONDS) as connection,
        suppress(ConnectionError),
    ):
        connection.sendall(request)
        while not re.search(rb"(?is)\nconnection: close\r\n(.*\r\n)?\r\n", answer):
            octets = connection.recv(1 << 16)
            if not octets:
                break
            answer += octets
    status = re.search(rb"HTTP/1\.[01] (101|[2-5]\d\d)", answer)
    return int(status[1]) if status else 0


def send_http2(port: int, request: bytes) -> None:
    """Wait for the end of the stream or of the connection."""
    with (
        socket.create_connection(("127.0.0.1", port), MAX_WAIT_SECONDS) as connection,
        connection.makefile("rb") as answer,
        suppress(ConnectionError),
    ):
        connection.sendall(request)
        while len(head := answer.read(9)) == 9:
            length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            answer.read(length)
            if kind in (3, 7) or (kind in (0, 1) and flags & 1):
                return


def say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateway", type=int, default=8080, help="the port of the gateway (default: 8080)")
    parser.add_argument("--api", type=int, default=9100, help="the port of the API, which must be free (default: 9100)")
    parser.add_argument("--token", help="an access token without role:partner")
    parser.add_argument("--websocket", action="store_true", help="the gateway forwards WebSockets")
    arguments = parser.parse_args()
    wrong = 0
    with RecordingAPI(arguments.api).running() as api:
        for case in CASES:
            for token in dict.fromkeys([None, arguments.token]):
                api.received.clear()
                say(f"{'with' if token else 'without'} a token: {case}")
                try:
                    send_http1(arguments.gateway, case.as_http1(token))
                    send_http2(arguments.gateway, case.as_http2(token))
                except TimeoutError:
                    say("    WRONG; the connection does not end")
                    wrong += 1
                for received in api.received:
                    faults = faults_of(received, websocket=arguments.websocket)
                    wrong += bool(faults)
                    if not faults and received.target == "/public/last":
                        continue
                    say("   ", "; ".join(["WRONG", *faults]) if faults else "ok", str(received))
    say(f"{wrong} requests that the gateway must not forward in this form")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
