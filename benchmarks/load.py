"""Rounds of load by wrk, with the responses, the latencies and the processor time of each process."""

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

BROWSER_HEADERS = (
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Accept: */*",
    "Accept-Language: de,en-US;q=0.7,en;q=0.3",
    "Accept-Encoding: gzip, deflate, br",
    "Origin: https://shop.example",
    "Referer: https://shop.example/",
    "Sec-Fetch-Dest: empty",
    "Sec-Fetch-Mode: cors",
    "Sec-Fetch-Site: cross-site",
    "X-Forwarded-For: 203.0.113.7",
    "X-Forwarded-Proto: https",
)
"""What a browser and the proxy before the service add to the three headers of a form by wrk, which makes 14."""

Script = Literal["cycle", "refresh", "post_each"]


class LoadFailed(Exception):
    """A response was wrong or missing."""


class WrkSummary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The line that wrk/common.lua prints at the end of a round. Times are microseconds."""

    requests: int
    duration_us: int
    p50_us: int
    p99_us: int
    unanswered: int
    refused: int
    wrong: int


class Round(msgspec.Struct, frozen=True):
    """The measurements of one round, which lasted `seconds`.

    `server_seconds`, `redis_seconds` and `load_seconds` are processor time.
    """

    requests: int
    seconds: float
    server_seconds: float
    redis_seconds: float
    load_seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def rate(self) -> float:
        """The number of responses per second."""
        return self.requests / self.seconds

    @property
    def server_us(self) -> float:
        """The processor time of the server for each request."""
        return self.server_seconds / self.requests * 1e6

    @property
    def redis_us(self) -> float:
        return self.redis_seconds / self.requests * 1e6

    @property
    def server_share(self) -> float:
        """The share of its core that the server used. No other measured process runs there."""
        return self.server_seconds / self.seconds

    @property
    def load_share(self) -> float:
        """The share of their common core that Redis and wrk used."""
        return (self.redis_seconds + self.load_seconds) / self.seconds


def no_arguments(_: int) -> Sequence[str]:
    return ()


def check_nothing(_: Sequence[str]) -> None:
    pass


@dataclass
class Target:
    """A URL under load.

    The processor time of `server_pid` and `redis_pid` includes their descendants. `prepare` gets the seconds of a round
    and returns the arguments of wrk's script. `check` gets these arguments before and after each round. It sends its
    own request and raises LoadFailed unless the response is right. `seconds` is the length of its rounds. If it is
    None, the run decides. `headers` are sent beside those that wrk needs.
    """

    name: str
    url: str
    server_pid: int
    redis_pid: int
    script: Script = "cycle"
    prepare: Callable[[int], Sequence[str]] = no_arguments
    check: Callable[[Sequence[str]], None] = check_nothing
    connections: int = CONNECTIONS
    seconds: int | None = None
    headers: Sequence[str] = ()

    def measure(self, seconds: int) -> Round:
        """Run one round. Raises LoadFailed if a response was wrong or missing."""
        seconds = self.seconds or seconds
        arguments = self.prepare(seconds)
        self.check(arguments)
        before = cpu_seconds(self.server_pid), cpu_seconds(self.redis_pid)
        summary, load_seconds = run_wrk(self.url, self.script, arguments, self.connections, seconds, self.headers)
        after = cpu_seconds(self.server_pid), cpu_seconds(self.redis_pid)
        self.check(arguments)
        return Round(
            requests=summary.requests,
            seconds=summary.duration_us / 1e6,
            server_seconds=after[0] - before[0],
            redis_seconds=after[1] - before[1],
            load_seconds=load_seconds,
            p50_ms=summary.p50_us / 1000,
            p99_ms=summary.p99_us / 1000,
        )


def run_wrk(
    url: str, script: Script, arguments: Sequence[str], connections: int, seconds: int, headers: Sequence[str] = ()
) -> tuple[WrkSummary, float]:
    """Run wrk on the core of the load. Returns its summary and its own processor time in seconds."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s"]
    command += [f"-H{header}" for header in headers]
    command += ["-s", str(SCRIPTS / f"{script}.lua"), url, "--", *arguments]
    environment = os.environ | {"LUA_PATH": f"{SCRIPTS}/?.lua;;"}
    with on_core(LOAD_CORE):
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
    assert process.stdout is not None
    with process.stdout as output:
        output_text = output.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return parse_wrk_summary(output_text), usage.ru_utime + usage.ru_stime


def parse_wrk_summary(output_text: str) -> WrkSummary:
    """Parse the last line of the output of wrk.

    Raises LoadFailed if that line is no summary, or if a response was wrong or missing.
    """
    line = output_text.strip().rpartition("\n")[2]
    try:
        summary = msgspec.json.decode(line, type=WrkSummary)
    except msgspec.DecodeError:
        raise LoadFailed(f"wrk failed:\n{output_text}") from None
    if summary.unanswered or summary.refused or summary.wrong or not summary.requests:
        raise LoadFailed(f"not every response was right: {line}")
    return summary


def measure_in_turns(targets: Sequence[Target], rounds: int, seconds: int, *, warm: bool) -> dict[str, list[Round]]:
    """Return the rounds of each target, by name.

    All targets take part in each turn, since the speed of a machine changes within minutes. If `warm` is set, each
    target first runs for one second that does not count.
    """
    if warm:
        for target in targets:
            target.measure(1)
    series: dict[str, list[Round]] = {target.name: [] for target in targets}
    for _ in range(rounds):
        for target in targets:
            series[target.name].append(target.measure(seconds))
    return series
