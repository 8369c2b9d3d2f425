"""What a run has measured, as it lies in results.json, and the numbers that are made of it."""

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

FILE = "results.json"
PACKAGES = ("starlette", "uvicorn", "uvloop", "httptools", "redis", "hiredis")

Series = dict[str, list[Round]]
"""The rounds of each thing that was measured, by its name; what was measured in turns has as many rounds."""


Rows = dict[str, dict[str, list[float]]]
"""The values of all rounds, by the name of the row and of its part, of measurements without wrk."""

WHOLE = ""
"""The name of the part of a row that has only one."""


class Machine(msgspec.Struct, frozen=True):
    """What it was measured on, and with; `busy` is the load of the system just before."""

    date: str
    processor: str
    cores: int
    busy: float
    redis: str
    python: str
    versions: dict[str, str]


class Peers(msgspec.Struct, frozen=True):
    """Peers, and of the same run our operations that they are held against."""

    machine: Machine
    series: Series
    ours: Series


class Notice(msgspec.Struct, frozen=True):
    """The latencies of another caller while a hostile request was sent `sent` times.

    The times are milliseconds of the caller, and the growth is that of the worker.
    """

    name: str
    p50_ms: float
    p99_ms: float
    most_ms: float
    sent: int = 0
    growth_mib: float = 0.0


class Results(msgspec.Struct):
    """`lookups` are microseconds a call. None is what this run did not measure; `peers` may be of an earlier one.

    `rows` and `notices` lack what this run did not measure.
    """

    machine: Machine
    quick: bool
    seconds: int
    series: Series = {}
    lookups: dict[str, float] = {}
    sessions: int = 0
    bytes_per_session: float | None = None
    growth_per_rotation: float | None = None
    busy_ratio: float | None = None
    worker_mib: float | None = None
    peers: Peers | None = None
    rows: Rows = {}
    notices: list[Notice] = []


def describe_machine(redis: str) -> Machine:
    """`redis` is what the server says of itself."""
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
    """`Redis 7.0.15`, or `Valkey` with its version."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    number = re.search(r"v=([\d.]+)", said)
    return f"{'Valkey' if 'valkey' in said.lower() else 'Redis'} {number[1] if number else '?'}"


def median_of(rounds: Sequence[Round], number: Callable[[Round], float]) -> float:
    return statistics.median(map(number, rounds))


def cost_ratio(ours: Sequence[Round], other: Sequence[Round]) -> float:
    """How many of ours cost the server what one of the other does: the median of all turns, each by itself."""
    return statistics.median(floor.server_us / round_.server_us for round_, floor in zip(ours, other, strict=True))


def rate_ratio(ours: Sequence[Round], other: Sequence[Round]) -> float:
    """How many of ours are answered in the time of one of the other."""
    return statistics.median(round_.rate / floor.rate for round_, floor in zip(ours, other, strict=True))


def load_results(folder: Path) -> Results | None:
    """What an earlier run has left; None where there is nothing, or what another version wrote."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Results)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def save_results(results: Results, folder: Path) -> None:
    (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
