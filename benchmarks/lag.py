"""The time from the answer to a revocation until the last of three gateways refuses. Each is a process under load."""

from __future__ import annotations

import http.client
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlencode

from benchmarks.arena import CLIENT, Arena
from benchmarks.load import LoadFailed
from benchmarks.results import Rows
from service.system.parent_death import __file__ as parent_death
from tests.support.clients_and_users import REVOKE, REVOKE_ALL, VERIFY, bearer
from tests.support.servers import CHECKOUT, ServiceProcess, stop

P99, MOST = "three gateways refuse after a revocation, p99", "three gateways refuse after a revocation, the slowest"
REVOKED, ALL_REVOKED = "revoke", "revokeAll of 500 tokens"
GATEWAYS = 3
REVOCATIONS, WINDOW = 1000, 20
REVOCATIONS_OF_ALL, TOKENS_OF_ALL = 20, 500
LOAD_PAUSE_SECONDS = 0.001


class _End(NamedTuple):
    last_live: float
    first_refusal: float


class _Gateway:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def begin(self, tokens: Sequence[str], window: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{window} {' '.join(tokens)}\n")
        self._process.stdin.flush()

    def wait_until_ready(self) -> None:
        if (line := self._read()) != "ready":
            raise LoadFailed(f"a gateway is not ready: {line}")

    def read_ends(self) -> dict[int, _End]:
        """Return the end of each token, by its number."""
        ends = {}
        while (line := self._read()) != "done":
            number, last_live, first_refusal = line.split()
            ends[int(number)] = _End(float(last_live), float(first_refusal))
        return ends

    def _read(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline().strip()):
            raise LoadFailed("a gateway has ended; see its error output")
        return line


@dataclass
class _Scene:
    arena: Arena
    service: ServiceProcess
    gateways: Sequence[_Gateway]

    def measure_each(self) -> list[float]:
        """Return the seconds until the first refusal of each token. Each token is revoked alone."""
        tokens = self._start(REVOCATIONS)
        orders = [(urlencode(CLIENT.credentials | {"token": token}), [n]) for n, token in enumerate(tokens)]
        return [lag.first_refusal for lag in self._measure(tokens, WINDOW, orders)]

    def measure_all(self) -> list[float]:
        """Return the seconds until the last live answer of each token, since to ask for all of them takes longer."""
        lags = []
        for _ in range(REVOCATIONS_OF_ALL):
            sessions = self.arena.start_sessions_of("carol@example.com", TOKENS_OF_ALL)
            tokens = [token for token, _ in sessions]
            lags += self._measure(tokens, TOKENS_OF_ALL, [(tokens[0], list(range(TOKENS_OF_ALL)))])
        return [lag.last_live for lag in lags]

    def _start(self, count: int) -> list[str]:
        return [token for token, _ in self.arena.start_sessions(count)]

    def _measure(self, tokens: Sequence[str], window: int, orders: Sequence[tuple[str, Sequence[int]]]) -> list[_End]:
        """Return the seconds after the answer, of the slowest gateway. An order says which tokens are dead then."""
        for gateway in self.gateways:
            gateway.begin(tokens, window)
        for gateway in self.gateways:
            gateway.wait_until_ready()
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port)
        answered: dict[int, float] = {}
        for order, numbers in orders:
            answered |= dict.fromkeys(numbers, _revoke(connection, order))
        connection.close()
        ends = [gateway.read_ends() for gateway in self.gateways]
        return [
            _End(*(max(moments) - moment for moments in zip(*(of_one[number] for of_one in ends), strict=True)))
            for number, moment in answered.items()
        ]


def measure_lag(arena: Arena, rounds: int) -> Rows:
    """Milliseconds. The processes have both cores, since each of them is under load."""
    p99: dict[str, list[float]] = {}
    most: dict[str, list[float]] = {}
    with ExitStack() as running:
        service = running.enter_context(arena.running(everywhere=True, TOKEN_SERVICE_VERIFY_CACHE="on"))
        gateways = [running.enter_context(_running_gateway(arena.deployment.redis.url)) for _ in range(GATEWAYS)]
        scene = _Scene(arena, service, gateways)
        ((token, _),) = arena.start_sessions(1)
        with _load_on(service, token):
            for _ in range(rounds):
                for name, measure in {REVOKED: scene.measure_each, ALL_REVOKED: scene.measure_all}.items():
                    lags = sorted(measure())
                    p99.setdefault(name, []).append(lags[math.ceil(len(lags) * 0.99) - 1] * 1000)
                    most.setdefault(name, []).append(lags[-1] * 1000)
    return {P99: p99, MOST: most}


def _revoke(connection: http.client.HTTPConnection, order: str) -> float:
    """Send a form to revoke, or the bearer of a revokeAll, and return the time of the answer."""
    if "=" in order:
        connection.request("POST", REVOKE, order, {"Content-Type": "application/x-www-form-urlencoded"})
    else:
        connection.request("POST", REVOKE_ALL, headers=bearer(order))
    response = connection.getresponse()
    moment = time.monotonic()
    if (response.status, response.read()) != (200, b""):
        raise LoadFailed(f"a revocation is answered {response.status}")
    return moment


@contextmanager
def _running_gateway(redis_url: str) -> Iterator[_Gateway]:
    command = [sys.executable, parent_death, str(os.getpid()), sys.executable, "-m", "benchmarks.watcher", redis_url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT) as process:
        try:
            yield _Gateway(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            stop(process)


@contextmanager
def _load_on(service: ServiceProcess, token: str) -> Iterator[None]:
    """Send requests of another caller all the time. Raises LoadFailed at the end if an answer was not 200."""
    is_over, statuses = threading.Event(), set[int]()

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", service.port)
        while not is_over.wait(LOAD_PAUSE_SECONDS):
            connection.request("GET", VERIFY, headers=bearer(token))
            response = connection.getresponse()
            response.read()
            statuses.add(response.status)
        connection.close()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    if statuses != {200}:
        raise LoadFailed(f"verify answers {statuses}")
