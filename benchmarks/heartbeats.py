"""What idle workers cost their master: commands for each worker, and the share of a core for the workers of a fleet.

    python -m benchmarks.heartbeats REDIS_URL WORKERS

This is one process of the fleet. It connects the Redis client of so many workers, prints "ready", and keeps them
connected until its standard input ends.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

import redis

from benchmarks.load import LoadFailed
from benchmarks.processes import SERVER_CORE, on_core
from benchmarks.results import WHOLE, Rows
from benchmarks.testbed import Testbed
from service.config.settings import load_settings
from service.crypto.opaque_tokens import make_access_token
from service.worker import Worker
from tests.conftest import SECRET_KEY
from tests.support.servers import CHECKOUT

PROCESSES: Final = 4
WORKERS_EACH: Final = 50
WORKERS: Final = PROCESSES * WORKERS_EACH
COMMANDS: Final = "heartbeat commands a second, for each worker and master"
SHARE: Final = f"Redis with {WORKERS} idle workers, of its core"
SECONDS: Final = 10
UNMEASURED_COMMANDS: Final = frozenset({"cmdstat_info"})


class Usage(NamedTuple):
    """Counters of a Redis server: the time in seconds, its processor time in seconds, and its commands."""

    time: float
    processor: float
    commands: int


def measure_heartbeats(testbed: Testbed, rounds: int) -> Rows:
    """Return commands a second for each worker, and the percentage of its core that Redis uses for all of them.

    What Redis uses without a worker is subtracted.
    """
    rows: Rows = {COMMANDS: {WHOLE: []}, SHARE: {WHOLE: []}}
    store = testbed.deployment.store
    for _ in range(rounds):
        share_alone, _ = _measure_rest(store)
        with running_fleet(testbed.deployment.redis.url):
            share, rate = _measure_rest(store)
        rows[COMMANDS][WHOLE].append(rate / WORKERS)
        rows[SHARE][WHOLE].append(100 * (share - share_alone))
    return rows


@contextmanager
def running_fleet(redis_url: str) -> Iterator[None]:
    """Keep the workers of all processes connected during the block.

    Raises LoadFailed if a process ends before its workers are connected.
    """
    arguments = [sys.executable, "-m", "benchmarks.heartbeats", redis_url, str(WORKERS_EACH)]
    with ExitStack() as stack, on_core(SERVER_CORE):
        processes = [
            stack.enter_context(
                subprocess.Popen(arguments, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(PROCESSES)
        ]
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise LoadFailed("the workers of a fleet did not connect")
        yield


def _measure_rest(store: redis.Redis) -> tuple[float, float]:
    """Return the share of a core that Redis uses, and the number of commands a second."""
    before = _read_usage(store)
    time.sleep(SECONDS)
    after = _read_usage(store)
    seconds = after.time - before.time
    return (after.processor - before.processor) / seconds, (after.commands - before.commands) / seconds


def _read_usage(store: redis.Redis) -> Usage:
    statistics: dict[str, dict[str, int]] = store.info("commandstats")
    processor = store.info("cpu")
    return Usage(
        time.monotonic(),
        float(processor["used_cpu_sys_main_thread"]) + float(processor["used_cpu_user_main_thread"]),
        sum(each["calls"] for name, each in statistics.items() if name not in UNMEASURED_COMMANDS),
    )


async def keep_connected(redis_url: str, count: int) -> None:
    """Connect the workers, and close them when standard input ends."""
    settings = load_settings({"REDIS_URL": redis_url, "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY})
    workers = [Worker(settings) for _ in range(count)]
    for worker in workers:
        await worker.redis.read_clock_ms()
        await worker.bearer.lookup(make_access_token("000").text)
        await worker.clients.find("nobody")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for worker in workers:
        await worker.close()


if __name__ == "__main__":
    asyncio.run(keep_connected(sys.argv[1], int(sys.argv[2])))
