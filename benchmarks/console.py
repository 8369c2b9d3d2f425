"""The time that a console command takes, from the start of its process to its end."""

from __future__ import annotations

import os
import statistics
import subprocess
import time

from benchmarks.processes import SERVER_CORE, on_core
from benchmarks.testbed import Testbed
from tests.support.servers import CHECKOUT

COMMAND = (str(CHECKOUT / "scripts" / "admin"), "client", "list")
RUNS = 10


def measure_console(testbed: Testbed, runs: int = RUNS) -> float:
    """Return the median of the seconds of a command that lists the clients, after a run that is not counted."""
    elapsed = []
    environment = {"PATH": os.environ["PATH"]} | testbed.deployment.environment()
    with on_core(SERVER_CORE):
        for _ in range(1 + runs):
            started_at = time.perf_counter()
            subprocess.run(COMMAND, env=environment, stdout=subprocess.DEVNULL, timeout=60, check=True)
            elapsed.append(time.perf_counter() - started_at)
    return statistics.median(elapsed[1:])
