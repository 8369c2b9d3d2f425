"""The longest step of the event loop while the service handles one request that is made to be expensive.

The service runs in a thread of this process, on asyncio's own loop, whose callbacks can be measured. What counts is
the processor time of a callback. While one runs, no other caller is served.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.arena import Arena
from benchmarks.inside import logging_to
from benchmarks.load import LoadFailed
from benchmarks.processes import SERVER_CORE, on_core
from benchmarks.results import WHOLE, Rows
from service.app import Parts, assemble
from service.realms.outgoing import Outgoing, load_certificates
from service.settings import load_settings
from tests.hostile import Caller, Hostile, get, make_hostile_requests, make_variables
from tests.serving.conftest import running_server

HOSTILE, OUTGOING = "longest step for a hostile request", "longest step of the first request to an organisation"
HARMLESS = Hostile.of("a health check", get("/healthz"), 200)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"


def measure_steps(arena: Arena, rounds: int) -> Rows:
    """Milliseconds of so many rounds for each request."""
    with on_core(SERVER_CORE), logging_to(arena.folder / "steps.log"):
        return {
            HOSTILE: _measure_hostile_requests(arena, rounds),
            OUTGOING: {WHOLE: asyncio.run(_measure_outgoing(rounds))},
        }


def _measure_hostile_requests(arena: Arena, rounds: int) -> dict[str, list[float]]:
    ((access_token, _),) = arena.start_sessions(1)
    app = assemble(Parts(load_settings(arena.stage.environment(**make_variables(arena.folder)))))
    with _watching_steps() as steps, running_server(app, loop="asyncio", lifespan="on") as serving:
        return {
            hostile.name: [_measure_longest_step(serving.port, hostile, steps) for _ in range(rounds)]
            for hostile in make_hostile_requests(access_token)
        }


def _measure_longest_step(port: int, hostile: Hostile, steps: list[float]) -> float:
    """Include the steps behind the answer: another request is answered before the longest is taken."""
    caller, other = Caller(port), Caller(port)
    steps.clear()
    for sender, request in ((caller, hostile), (other, HARMLESS)):
        answer = sender.ask(request)
        if not request.is_expected(answer):
            raise LoadFailed(f"{hostile.name}: {request.name} is answered {answer}, not {sorted(request.statuses)}")
    longest = max(steps)
    caller.close()
    other.close()
    return longest * 1000


async def _measure_outgoing(rounds: int) -> list[float]:
    """Whoever calls first has the certificates of the machine read, which takes longer than a step may."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    longest = []
    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        for _ in range(rounds):
            load_certificates.cache_clear()
            outgoing = Outgoing()
            with _watching_steps() as steps:
                await asyncio.sleep(0)  # the step that is under way is not measured
                await outgoing.get(url, {})
                longest.append(max(steps) * 1000)
            await outgoing.close()
    return longest


@contextmanager
def _watching_steps() -> Iterator[list[float]]:
    """Note the processor time of each callback of every event loop, in seconds."""
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
