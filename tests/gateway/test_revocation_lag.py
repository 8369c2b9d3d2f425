"""From the answer to a revocation until the last of three gateways refuses: each a process, all under load."""

from __future__ import annotations

import asyncio
import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlencode

import pytest

from service.lifeline import __file__ as lifeline
from service.store.links import TRUSTED_SECONDS
from tests.faults.stage import Stage, parts_on, start_sessions
from tests.gateway.watcher import percentile
from tests.servers import CHECKOUT, ServiceProcess, running_service, stop

GATEWAYS = 3
LAG_SECONDS = 0.010
LOAD_PAUSE_SECONDS = 0.001
ROUNDS = 3


class End(NamedTuple):
    last_live: float
    first_refusal: float


class Gateway:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.turn_seconds = 0.0
        """What 99 % of its turns in the last measurement did not exceed."""

    def begin(self, tokens: list[str], window: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{window} {' '.join(tokens)}\n")
        self._process.stdin.flush()

    def wait_until_ready(self) -> None:
        assert self._read() == "ready"

    def read_ends(self) -> dict[int, End]:
        """Of each token, by its number."""
        ends: dict[int, End] = {}
        while not (line := self._read()).startswith("done "):
            number, last_live, first_refusal = line.split()
            ends[int(number)] = End(float(last_live), float(first_refusal))
        self.turn_seconds = float(line.removeprefix("done "))
        return ends

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the gateway ended; see its error output"
        return line


@dataclass
class Scene:
    stage: Stage
    service: ServiceProcess
    gateways: list[Gateway] = field(default_factory=list)

    def measure(self, tokens: list[str], window: int, end: list[tuple[str, list[int]]]) -> list[End]:
        """Seconds after the answer, of the slowest gateway: `end` is what to ask, and which tokens are dead then."""
        for gateway in self.gateways:
            gateway.begin(tokens, window)
        for gateway in self.gateways:
            gateway.wait_until_ready()
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port)
        answered: dict[int, float] = {}
        for body, numbers in end:
            moment = _ask(connection, body)
            answered |= dict.fromkeys(numbers, moment)
        connection.close()
        ends = [gateway.read_ends() for gateway in self.gateways]
        return [
            End(*(max(moments) - moment for moments in zip(*(of_one[number] for of_one in ends), strict=True)))
            for number, moment in answered.items()
        ]


def _ask(connection: http.client.HTTPConnection, body: str) -> float:
    """A form for revoke, or the bearer of a revokeAll; when its answer came."""
    if "=" in body:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/oauth2/v1/revoke", body, headers)
    else:
        connection.request("POST", "/oauth2/v1/revokeAll", headers={"Authorization": f"Bearer {body}"})
    response = connection.getresponse()
    moment = time.monotonic()
    assert (response.status, response.read()) == (200, b"")
    return moment


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("lag")
    with ExitStack() as running:
        stage = Stage(folder)
        running.callback(stop, stage.redis.process)
        running.callback(stage.store.close)
        environment = stage.environment(TOKEN_SERVICE_VERIFY_CACHE="on")
        scene = Scene(stage, running.enter_context(running_service(folder, environment)))
        scene.gateways = [running.enter_context(_running_gateway(stage)) for _ in range(GATEWAYS)]
        yield scene


@contextmanager
def _running_gateway(stage: Stage) -> Iterator[Gateway]:
    command = [sys.executable, lifeline, str(os.getpid()), sys.executable, "-m", "tests.gateway.watcher"]
    with subprocess.Popen(
        [*command, stage.redis.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT
    ) as process:
        try:
            yield Gateway(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            stop(process)


@contextmanager
def _load_on(service: ServiceProcess, token: str) -> Iterator[None]:
    """Somebody else asks the service all the time."""
    is_over = threading.Event()

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", service.port)
        while not is_over.is_set():
            connection.request("GET", "/oauth2/v1/verify", headers={"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            assert (response.status, response.read()) == (200, b"")
            is_over.wait(LOAD_PAUSE_SECONDS)
        connection.close()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _start(stage: Stage, username: str, count: int) -> list[str]:
    async def start() -> list[str]:
        async with parts_on(stage) as parts:
            return [token for token, _ in await start_sessions(parts, username, count)]

    return asyncio.run(start())


def _judge(measure: Callable[[], list[float]], gateways: Sequence[Gateway] = ()) -> None:
    """p99 is under 10 ms in one of three rounds: what else a machine does meanwhile is not the gateways' lag.

    On a busy machine it may be as long as a turn of one of `gateways`, which waits for its processor.
    """
    told = []
    for _ in range(ROUNDS):
        lags = measure()
        half, most_of_all = percentile(lags, 50), percentile(lags, 99)
        turn = max((gateway.turn_seconds for gateway in gateways), default=0.0)
        told.append(
            f"median {half * 1000:.2f} ms, p99 {most_of_all * 1000:.2f} ms, most {max(lags) * 1000:.2f} ms;"
            f" a turn of a gateway p99 {turn * 1000:.2f} ms"
        )
        sys.stdout.write(f"{told[-1]}\n")
        assert max(lags) < TRUSTED_SECONDS, told
        if most_of_all < max(LAG_SECONDS, turn):
            return
    raise AssertionError(told)


def _revoke_each(scene: Scene, count: int) -> list[float]:
    """The first refusal counts."""
    tokens = _start(scene.stage, "carol@example.com", count)
    end = [(urlencode({"client_id": "phone-app", "token": token}), [n]) for n, token in enumerate(tokens)]
    with _load_on(scene.service, _start(scene.stage, "dave@example.com", 1)[0]):
        return [lag.first_refusal for lag in scene.measure(tokens, 20, end)]


def _revoke_all(scene: Scene, times: int) -> list[float]:
    """The last live answer counts: to ask for all 500 once more takes a gateway longer than to forget them."""
    lags: list[float] = []
    with _load_on(scene.service, _start(scene.stage, "dave@example.com", 1)[0]):
        for _ in range(times):
            tokens = _start(scene.stage, "carol@example.com", 500)
            ends = scene.measure(tokens, 500, [(tokens[0], list(range(500)))])
            lags += [lag.last_live for lag in ends]
    return lags


@pytest.mark.clause("decided-memory-follows-redis", "decided-gateway-stops-trusting")
def test_a_revoked_token_is_refused_by_three_gateways_within_the_bound(scene: Scene) -> None:
    assert max(_revoke_each(scene, 100)) < TRUSTED_SECONDS


@pytest.mark.clause("decided-memory-follows-redis", "decided-gateway-stops-trusting")
def test_no_token_of_a_user_is_live_at_three_gateways_beyond_the_bound(scene: Scene) -> None:
    assert max(_revoke_all(scene, 2)) < TRUSTED_SECONDS


@pytest.mark.long
@pytest.mark.clause("decided-memory-follows-redis")
def test_a_revoked_token_is_refused_by_three_gateways_within_milliseconds(scene: Scene) -> None:
    _judge(lambda: _revoke_each(scene, 1000), scene.gateways)


@pytest.mark.long
@pytest.mark.clause("decided-memory-follows-redis")
def test_no_token_of_a_user_is_live_at_three_gateways_milliseconds_after_revoke_all(scene: Scene) -> None:
    _judge(lambda: _revoke_all(scene, 20))
