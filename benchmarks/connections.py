"""Refreshes of one client with a secret over many connections, with the default log, and probes beside them.

Whoever probes an instance opens a new connection, whose request waits for those of all others.
"""

from __future__ import annotations

import math
import re
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from benchmarks.load import CONNECTIONS, Round, Target
from benchmarks.operations import make_refresh
from benchmarks.processes import await_idle
from benchmarks.results import Rows, is_busy
from benchmarks.testbed import Testbed
from tests.support.servers import get_status

RATE, P50, P99 = "refreshes a second", "p50 ms", "p99 ms"
SPREAD = "refresh of one client with a secret, p99 / p50 by the log"
"""The times of the log leave out the wait for the event loop, which serves hundreds of connections unfairly.

By wrk, p99 / p50 of an empty Starlette route on 1,000 connections is 86.
"""
PROBE = "slowest probe of /readyz, ms"
SECONDS = 3


def measure_connections(testbed: Testbed, rounds: int) -> Rows:
    """Return the values of all rounds. One worker has a core, two workers also that of Redis and the load."""
    rows: Rows = {}
    with testbed.running(LOG_LEVEL="info") as one, testbed.running(on_all_cores=True, WEB_CONCURRENCY="2") as two:
        targets = [
            make_refresh(f"{count:,} connections", testbed, one, connections=count) for count in (64, 300, 1_000)
        ]
        targets.append(make_refresh("64 connections, two workers", testbed, two))
        targets.append(make_refresh("64 at once, no keep-alive", testbed, one, headers=["Connection: close"]))
        for target in targets * rounds:
            await_idle(target.server_pid)
            log_bytes = one.log.stat().st_size
            round_, slowest_ms = _measure_beside_probes(target)
            values = {RATE: round_.rate, P50: round_.p50_ms, P99: round_.p99_ms, PROBE: slowest_ms}
            if target.connections > CONNECTIONS and is_busy(round_):
                times = re.findall(rb'"ms":([0-9.]+)', one.log.read_bytes()[log_bytes:])
                percentiles = statistics.quantiles(map(float, times), n=100)
                values[SPREAD] = percentiles[98] / percentiles[49]
            for name, value in values.items():
                rows.setdefault(name, {}).setdefault(target.name, []).append(value)
    return rows


def _measure_beside_probes(target: Target) -> tuple[Round, float]:
    """Return the round, and the milliseconds of the slowest probe. A refused one is infinitely slow."""
    slowest_ms = 0.0
    with ThreadPoolExecutor(1) as other:
        load = other.submit(target.measure, SECONDS)
        while not load.done():
            time.sleep(0.1)
            began = time.perf_counter()
            is_ready = get_status(urlsplit(target.url).netloc, "/readyz") == 200
            slowest_ms = max(slowest_ms, 1000 * (time.perf_counter() - began) if is_ready else math.inf)
    return load.result(), slowest_ms
