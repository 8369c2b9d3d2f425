"""Three gateways, each a process, come to refuse a revoked token, which never becomes live again.

`scripts/bench` measures how soon that is so. `test_lookup_outages.py` proves that memory is trusted for a second at
most.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

import pytest

from service.system.parent_death import __file__ as parent_death
from tests.faults.deployment import Deployment, start_sessions, worker_on
from tests.support.servers import CHECKOUT, ServiceProcess, running_service, stop
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

GATEWAYS = 3

pytestmark = pytest.mark.clause("decided-memory-follows-redis", "decided-gateway-stops-trusting")


class Gateway:
    """A process of `watcher.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._said: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def begin(self, tokens: list[str]) -> None:
        self._said.clear()
        assert self._process.stdin is not None
        self._process.stdin.write(f"{' '.join(tokens)}\n")
        self._process.stdin.flush()

    def wait_until_it_says(self, word: str) -> None:
        wait_until(lambda: word in self._said or self._process.poll() is not None, f"a gateway to say {word}")
        assert self._process.poll() is None, "the gateway ended; see its error output"

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.append(line.strip())


@dataclass(frozen=True)
class ThreeGateways:
    deployment: Deployment
    service: ServiceProcess
    gateways: list[Gateway]

    def end(self, tokens: list[str], *requests: str) -> None:
        """Send the requests that end these tokens, which are live at each gateway, and wait until all refuse them.

        A request is the form of a revoke, or the bearer of a revokeAll.
        """
        for gateway in self.gateways:
            gateway.begin(tokens)
        for gateway in self.gateways:
            gateway.wait_until_it_says("ready")
        with closing(http.client.HTTPConnection("127.0.0.1", self.service.port, MAX_WAIT_SECONDS)) as connection:
            for request in requests:
                _ask(connection, request)
        for gateway in self.gateways:
            gateway.wait_until_it_says("done")


def _ask(connection: http.client.HTTPConnection, request: str) -> None:
    if "=" in request:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/oauth2/v1/revoke", request, headers)
    else:
        connection.request("POST", "/oauth2/v1/revokeAll", headers={"Authorization": f"Bearer {request}"})
    response = connection.getresponse()
    assert (response.status, response.read()) == (200, b"")


@pytest.fixture(scope="module")
def three_gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeGateways]:
    folder = tmp_path_factory.mktemp("gateways")
    with ExitStack() as running:
        deployment = Deployment(folder)
        running.callback(deployment.close)
        service = running.enter_context(running_service(folder, deployment.environment()))
        yield ThreeGateways(
            deployment, service, [running.enter_context(_running_gateway(deployment)) for _ in range(GATEWAYS)]
        )


@contextmanager
def _running_gateway(deployment: Deployment) -> Iterator[Gateway]:
    command = [sys.executable, parent_death, str(os.getpid()), sys.executable, "-m", "tests.gateway.watcher"]
    with subprocess.Popen(
        [*command, deployment.redis.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT
    ) as process:
        try:
            yield Gateway(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            stop(process)


def _start(deployment: Deployment, count: int) -> list[str]:
    async def start() -> list[str]:
        async with worker_on(deployment) as worker:
            return [token for token, _ in await start_sessions(worker, "carol@example.com", count)]

    return asyncio.run(start())


def test_revoked_tokens_come_to_be_refused_by_all(three_gateways: ThreeGateways) -> None:
    tokens = _start(three_gateways.deployment, 100)

    three_gateways.end(tokens, *(urlencode({"client_id": "phone-app", "token": token}) for token in tokens))


def test_all_tokens_of_a_user_come_to_be_refused_by_all(three_gateways: ThreeGateways) -> None:
    tokens = _start(three_gateways.deployment, 500)

    three_gateways.end(tokens, tokens[0])
