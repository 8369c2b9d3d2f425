"""The time from the response to a revocation until the last of three gateways refuses the token.

Each gateway is a process under load.
"""

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

from benchmarks.load import LoadFailed
from benchmarks.results import Rows
from benchmarks.testbed import CLIENT, Testbed
from service.system.process import __file__ as parent_death
from tests.support.clients_and_users import REVOKE, REVOKE_ALL, VERIFY, bearer
from tests.support.servers import CHECKOUT, ServiceProcess, stop

P99, SLOWEST = "three gateways refuse after a revocation, p99", "three gateways refuse after a revocation, the slowest"
LOOKUPS = "lookups a second, of the slowest gateway"
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
        self.lookups_per_second: list[float] = []

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
        while (words := self._read().split())[0] != "done":
            ends[int(words[0])] = _End(float(words[1]), float(words[2]))
        self.lookups_per_second.append(float(words[1]))
        return ends

    def _read(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline().strip()):
            raise LoadFailed("a gateway has ended; see its error output")
        return line


@dataclass
class _Measurement:
    testbed: Testbed
    service: ServiceProcess
    gateways: Sequence[_Gateway]

    def measure_each(self) -> list[float]:
        """Return the seconds until the first refusal of each token. Each token is revoked alone."""
        tokens = self._start(REVOCATIONS)
        revocations = [(urlencode(CLIENT.credentials | {"token": token}), [n]) for n, token in enumerate(tokens)]
        return [lag.first_refusal for lag in self._measure(tokens, WINDOW, revocations)]

    def measure_all(self) -> list[float]:
        """Return the seconds until the last lookup that found each token live.

        A turn of lookups over all tokens takes longer than the lag, so the first refusal would be too late.
        """
        lags = []
        for _ in range(REVOCATIONS_OF_ALL):
            sessions = self.testbed.start_sessions_of("carol@example.com", TOKENS_OF_ALL)
            tokens = [token for token, _ in sessions]
            lags += self._measure(tokens, TOKENS_OF_ALL, [(tokens[0], list(range(TOKENS_OF_ALL)))])
        return [lag.last_live for lag in lags]

    def _start(self, count: int) -> list[str]:
        return [token for token, _ in self.testbed.start_sessions(count)]

    def _measure(
        self, tokens: Sequence[str], window: int, revocations: Sequence[tuple[str, Sequence[int]]]
    ) -> list[_End]:
        """Return the seconds from the response until the end of each token at the slowest gateway.

        A revocation is the text for `_revoke` and the numbers of the tokens that it ends.
        """
        for gateway in self.gateways:
            gateway.begin(tokens, window)
        for gateway in self.gateways:
            gateway.wait_until_ready()
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port)
        answered: dict[int, float] = {}
        for revocation, numbers in revocations:
            answered |= dict.fromkeys(numbers, _revoke(connection, revocation))
        connection.close()
        ends = [gateway.read_ends() for gateway in self.gateways]
        return [
            _End(
                *(
                    max(times) - answered_at
                    for times in zip(*(ends_of_gateway[number] for ends_of_gateway in ends), strict=True)
                )
            )
            for number, answered_at in answered.items()
        ]


def measure_lag(testbed: Testbed, rounds: int) -> Rows:
    """Return milliseconds. The processes have both cores, since each of them is under load."""
    p99: dict[str, list[float]] = {}
    slowest: dict[str, list[float]] = {}
    lookups: dict[str, list[float]] = {}
    with ExitStack() as running:
        service = running.enter_context(testbed.running(on_all_cores=True, TOKEN_SERVICE_VERIFY_CACHE="on"))
        gateways = [running.enter_context(_running_gateway(testbed.deployment.redis.url)) for _ in range(GATEWAYS)]
        measurement = _Measurement(testbed, service, gateways)
        ((token, _),) = testbed.start_sessions(1)
        with _running_load(service, token):
            for _ in range(rounds):
                for name, measure in {REVOKED: measurement.measure_each, ALL_REVOKED: measurement.measure_all}.items():
                    lags = sorted(measure())
                    p99.setdefault(name, []).append(lags[math.ceil(len(lags) * 0.99) - 1] * 1000)
                    slowest.setdefault(name, []).append(lags[-1] * 1000)
                    rates = [gateway.lookups_per_second[-1] for gateway in gateways]
                    lookups.setdefault(name, []).append(min(rates))
    return {P99: p99, SLOWEST: slowest, LOOKUPS: lookups}


def _revoke(connection: http.client.HTTPConnection, revocation: str) -> float:
    """Send a form to revoke, or revokeAll with an access token. Returns the time of the response."""
    if "=" in revocation:
        connection.request("POST", REVOKE, revocation, {"Content-Type": "application/x-www-form-urlencoded"})
    else:
        connection.request("POST", REVOKE_ALL, headers=bearer(revocation))
    response = connection.getresponse()
    answered_at = time.monotonic()
    if (response.status, response.read()) != (200, b""):
        raise LoadFailed(f"a revocation is answered {response.status}")
    return answered_at


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
def _running_load(service: ServiceProcess, token: str) -> Iterator[None]:
    """Send requests of another caller while the block runs. Raises LoadFailed at its end if a status was not 200."""
    is_over, statuses = threading.Event(), set[int]()

    def send_requests() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", service.port)
        while not is_over.wait(LOAD_PAUSE_SECONDS):
            connection.request("GET", VERIFY, headers=bearer(token))
            response = connection.getresponse()
            response.read()
            statuses.add(response.status)
        connection.close()

    thread = threading.Thread(target=send_requests)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    if statuses != {200}:
        raise LoadFailed(f"verify answers {statuses}")
