"""The time that a console command takes, from the start of its process to its end."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import time
from typing import NamedTuple

from benchmarks.processes import SERVER_CORE, on_core
from benchmarks.testbed import Testbed
from tests.support.servers import CHECKOUT

COMMAND = (str(CHECKOUT / "scripts" / "admin"), "client", "list")
RUNS = 10


class ConsoleSeconds(NamedTuple):
    """The medians of all runs. `processor` includes the processes that the command starts."""

    elapsed: float
    processor: float


def measure_console(testbed: Testbed, runs: int = RUNS) -> ConsoleSeconds:
    """Run a command that lists the clients, as an operator does, after a run that is not counted."""
    elapsed, processor = [], []
    environment = {"PATH": os.environ["PATH"]} | testbed.deployment.environment()
    with on_core(SERVER_CORE):
        for _ in range(1 + runs):
            started_at, before = time.perf_counter(), _read_processor_seconds()
            subprocess.run(COMMAND, env=environment, stdout=subprocess.DEVNULL, timeout=60, check=True)
            elapsed.append(time.perf_counter() - started_at)
            processor.append(_read_processor_seconds() - before)
    return ConsoleSeconds(statistics.median(elapsed[1:]), statistics.median(processor[1:]))


def _read_processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
