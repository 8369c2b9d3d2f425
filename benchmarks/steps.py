"""The longest step of the event loop while the service handles one request that is made to be expensive.

The service runs in a thread of this process, on asyncio's own loop, whose callbacks can be measured. A step is the
processor time of one callback. No other request is served while a callback runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.in_process import logging_to
from benchmarks.load import LoadFailed
from benchmarks.processes import SERVER_CORE, on_core
from benchmarks.results import Rows
from benchmarks.testbed import Testbed
from service.app import build_app
from service.config.settings import load_settings
from service.worker import Worker
from tests.serving.conftest import running_server
from tests.support.hostile_requests import Caller, HostileRequest, get, make_hostile_requests, make_variables

HOSTILE = "longest step for a hostile request"
HARMLESS = HostileRequest.of("a health check", get("/healthz"), 200)


def measure_steps(testbed: Testbed, rounds: int) -> Rows:
    """Return milliseconds, with `rounds` values for each request."""
    with on_core(SERVER_CORE), logging_to(testbed.folder / "steps.log"):
        return {HOSTILE: _measure_hostile_requests(testbed, rounds)}


def _measure_hostile_requests(testbed: Testbed, rounds: int) -> dict[str, list[float]]:
    ((access_token, _),) = testbed.start_sessions(1)
    app = build_app(Worker(load_settings(testbed.deployment.environment(**make_variables()))))
    with _measuring_steps() as steps, running_server(app, loop="asyncio", lifespan="on") as serving:
        return {
            hostile.name: [_measure_longest_step(serving.port, hostile, steps) for _ in range(rounds)]
            for hostile in make_hostile_requests(access_token)
        }


def _measure_longest_step(port: int, hostile: HostileRequest, steps: list[float]) -> float:
    """Return the longest step in milliseconds.

    A second request is sent before that, so that work after the first response is included.
    """
    caller, other = Caller(port), Caller(port)
    steps.clear()
    for sender, request in ((caller, hostile), (other, HARMLESS)):
        response = sender.ask(request)
        if not request.is_expected(response):
            raise LoadFailed(f"{hostile.name}: {request.name} is answered {response}, not {sorted(request.statuses)}")
    longest = max(steps)
    caller.close()
    other.close()
    return longest * 1000


@contextmanager
def _measuring_steps() -> Iterator[list[float]]:
    """Yield a list to which the seconds of each callback are appended."""
    steps: list[float] = []
    run = asyncio.Handle._run

    def run_measured(handle: asyncio.Handle) -> None:
        before = time.thread_time()
        run(handle)
        steps.append(time.thread_time() - before)

    asyncio.Handle._run = run_measured  # type: ignore[method-assign, assignment]
    try:
        yield steps
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
