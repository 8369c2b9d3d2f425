"""The results of a run, and the numbers computed from them."""

from __future__ import annotations

import datetime
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from benchmarks.load import Round

PACKAGES = ("starlette", "uvicorn", "uvloop", "httptools", "redis", "hiredis")

Series = dict[str, list[Round]]
"""The rounds of each row, by its name. Rows that took turns have the same number of rounds."""

Rows = dict[str, dict[str, list[float]]]
"""The values of all rounds of measurements without wrk, by the name of the row and of its part."""

WHOLE = ""
"""The name of the part in a row with a single part."""


class Machine(msgspec.Struct, frozen=True):
    """The machine and the versions of a run. `busy` is the system load before the run."""

    date: str
    processor: str
    cores: int
    busy: float
    redis: str
    python: str
    versions: dict[str, str]


class Results(msgspec.Struct):
    """Results of a run. Fields that it did not measure are None or empty.

    `lookups` has microseconds per call. `bytes_of_ten_tokens` is a session's memory in Redis while ten of its access
    tokens live.
    """

    machine: Machine
    series: Series = {}
    lookups: dict[str, float] = {}
    bytes_per_session: float | None = None
    bytes_of_ten_tokens: float | None = None
    growth_per_rotation: float | None = None
    worker_mib: float | None = None
    console_seconds: float | None = None
    rows: Rows = {}


def describe_machine(redis: str) -> Machine:
    """Return the present machine. `redis` is the name and version of the Redis server."""
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return Machine(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        processor=found[1] if found else platform.machine(),
        cores=os.cpu_count() or 1,
        busy=round(os.getloadavg()[0], 1),
        redis=redis,
        python=platform.python_version(),
        versions={name: version(name) for name in PACKAGES},
    )


def describe_redis(binary: str) -> str:
    """Return the name and version of the server, such as `Redis 7.0.15` or `Valkey 8.0.1`."""
    output = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    number = re.search(r"v=([\d.]+)", output)
    return f"{'Valkey' if 'valkey' in output.lower() else 'Redis'} {number[1] if number else '?'}"


def median_of(rounds: Sequence[Round], number: Callable[[Round], float]) -> float:
    return statistics.median(map(number, rounds))


def cost_ratio(rounds: Sequence[Round], floor: Sequence[Round]) -> float:
    """Return the server's processor time of a request at the floor, divided by that in the measured rounds.

    The ratio is computed for each turn; the median counts.
    """
    return statistics.median(base.server_us / one.server_us for one, base in zip(rounds, floor, strict=True))


def rate_ratio(rounds: Sequence[Round], floor: Sequence[Round]) -> float:
    """Return the measured responses per second divided by those of the floor, as the median of all turns."""
    return statistics.median(one.rate / base.rate for one, base in zip(rounds, floor, strict=True))


def redis_ratio(rounds: Sequence[Round], floor: Sequence[Round]) -> float:
    """Return the processor time of Redis for a request, divided by that at the floor, as the median of all turns."""
    return statistics.median(one.redis_us / base.redis_us for one, base in zip(rounds, floor, strict=True))
