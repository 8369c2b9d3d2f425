"""Rounds of load by wrk: what was answered, after how long, and what it took of every process that had a part in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from benchmarks.processes import LOAD_CORE, cpu_seconds, on_core

CONNECTIONS = 64
SCRIPTS = Path(__file__).with_name("wrk")

Script = Literal["ask", "rotate", "spend"]


class LoadFailed(Exception):
    """An answer was not the right one, or did not come."""


class Told(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What wrk/told.lua tells of a round; times are microseconds."""

    requests: int
    duration_us: int
    p50_us: int
    p99_us: int
    unanswered: int
    refused: int
    wrong: int


class Round(msgspec.Struct, frozen=True):
    """`server_seconds`, `redis_seconds` and `load_seconds` are processor time, within `seconds` by the clock."""

    requests: int
    seconds: float
    server_seconds: float
    redis_seconds: float
    load_seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.requests / self.seconds

    @property
    def server_us(self) -> float:
        """Processor time of the server for each request."""
        return self.server_seconds / self.requests * 1e6

    @property
    def redis_us(self) -> float:
        return self.redis_seconds / self.requests * 1e6

    @property
    def server_share(self) -> float:
        """Of the core that the server has for itself."""
        return self.server_seconds / self.seconds

    @property
    def load_share(self) -> float:
        """Of the core that Redis and the load share."""
        return (self.redis_seconds + self.load_seconds) / self.seconds


def no_arguments(_: int) -> Sequence[str]:
    return ()


def check_nothing(_: Sequence[str]) -> None:
    pass


@dataclass
class Target:
    """One address under load.

    `server_pid` and `redis_pid` are the processes whose work is counted, with those that they started. `prepare` makes
    the arguments of wrk's script for a round of so many seconds; `check` gets them before a round and after it, and
    raises LoadFailed unless a request of its own gets the right answer.
    """

    name: str
    url: str
    server_pid: int
    redis_pid: int
    script: Script = "ask"
    prepare: Callable[[int], Sequence[str]] = no_arguments
    check: Callable[[Sequence[str]], None] = check_nothing
    connections: int = CONNECTIONS

    def measure(self, seconds: int) -> Round:
        """Raises LoadFailed unless every answer was the right one."""
        arguments = self.prepare(seconds)
        self.check(arguments)
        before = cpu_seconds(self.server_pid), cpu_seconds(self.redis_pid)
        told, load_seconds = run_wrk(self.url, self.script, arguments, self.connections, seconds)
        after = cpu_seconds(self.server_pid), cpu_seconds(self.redis_pid)
        self.check(arguments)
        return Round(
            requests=told.requests,
            seconds=told.duration_us / 1e6,
            server_seconds=after[0] - before[0],
            redis_seconds=after[1] - before[1],
            load_seconds=load_seconds,
            p50_ms=told.p50_us / 1000,
            p99_ms=told.p99_us / 1000,
        )


def run_wrk(url: str, script: Script, arguments: Sequence[str], connections: int, seconds: int) -> tuple[Told, float]:
    """What it told, and the processor time that it took itself; on the core of the load."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s"]
    command += ["-s", str(SCRIPTS / f"{script}.lua"), url, "--", *arguments]
    environment = os.environ | {"LUA_PATH": f"{SCRIPTS}/?.lua;;"}
    with on_core(LOAD_CORE):
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
    assert process.stdout is not None
    with process.stdout as output:
        said = output.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return read_told(said), usage.ru_utime + usage.ru_stime


def read_told(said: str) -> Told:
    """The last line of what wrk says. Raises LoadFailed for anything else, and where an answer was not right."""
    line = said.strip().rpartition("\n")[2]
    try:
        told = msgspec.json.decode(line, type=Told)
    except msgspec.DecodeError:
        raise LoadFailed(f"wrk did not come to its end:\n{said}") from None
    if told.unanswered or told.refused or told.wrong or not told.requests:
        raise LoadFailed(f"not every answer was right: {line}")
    return told


def measure_in_turns(targets: Sequence[Target], rounds: int, seconds: int, *, warm: bool) -> dict[str, list[Round]]:
    """The rounds of each, by name. A machine is fast and slow by the minute: so all take part in every turn.

    Where `warm`, a turn of one second goes before the first that counts.
    """
    if warm:
        for target in targets:
            target.measure(1)
    series: dict[str, list[Round]] = {target.name: [] for target in targets}
    for _ in range(rounds):
        for target in targets:
            series[target.name].append(target.measure(seconds))
    return series
