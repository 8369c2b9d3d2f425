"""The results of a run, and the numbers computed from them."""

from __future__ import annotations

import datetime
import os
import platform
import re
import statistics
import subprocess
import sysconfig
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from benchmarks.load import Round

OPTIMIZATIONS = {"--enable-optimizations": "PGO", "--with-lto": "LTO"}
PACKAGES = ("starlette", "uvicorn", "uvloop", "httptools", "redis", "hiredis")

Series = dict[str, list[Round]]
"""The rounds of each row, by its name. Rows that took turns have the same number of rounds."""

Rows = dict[str, dict[str, list[float]]]
"""The values of all rounds of measurements without wrk, by the name of the row and of its part."""

BUSY_SHARE = 0.8
"""The share of its core that the server of a measured round uses at least.

A server that waits for its load or its core batches less, so its processor time for a request says little.
"""

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
        python=describe_interpreter(),
        versions={name: version(name) for name in PACKAGES},
    )


def describe_redis(binary: str) -> str:
    """Return the name and version of the server, such as `Redis 7.0.15` or `Valkey 8.0.1`."""
    output = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    number = re.search(r"v=([\d.]+)", output)
    return f"{'Valkey' if 'valkey' in output.lower() else 'Redis'} {number[1] if number else '?'}"


def describe_interpreter() -> str:
    """Return name, version and build, which change the processor time of a request by up to a fifth."""
    options = str(sysconfig.get_config_var("CONFIG_ARGS"))
    build = [f"{'with' if option in options else 'without'} {name}" for option, name in OPTIMIZATIONS.items()]
    name = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{name} ({platform.python_compiler()}, {', '.join(build)})"


def is_busy(one: Round) -> bool:
    return one.server_share >= BUSY_SHARE


def median_of(rounds: Sequence[Round], number: Callable[[Round], float]) -> float:
    return statistics.median(map(number, rounds))


def keep_busy(*series: Sequence[Round]) -> list[tuple[Round, ...]]:
    """Return the turns in which all servers were busy. Raises KeyError if there are none."""
    turns = [turn for turn in zip(*series, strict=True) if all(map(is_busy, turn))]
    if not turns:
        raise KeyError("no round was busy")
    return turns


def ratio_of(rounds: Sequence[Round], others: Sequence[Round], number: Callable[[Round], float]) -> float:
    """Return the median of the ratios of all busy turns. Raises KeyError if there are none."""
    return statistics.median(number(one) / number(other) for one, other in keep_busy(rounds, others))


def cost_ratio(rounds: Sequence[Round], floor: Sequence[Round]) -> float:
    """Return the server's processor time of a request at the floor, divided by that in the measured rounds."""
    return ratio_of(floor, rounds, lambda one: one.server_us)


def rate_ratio(rounds: Sequence[Round], floor: Sequence[Round]) -> float:
    """Return the measured responses per second divided by those of the floor."""
    return ratio_of(rounds, floor, lambda one: one.rate)
