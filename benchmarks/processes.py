"""Processes under measure: the core that they run on, what they take of it, and the memory that is theirs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SERVER_CORE, LOAD_CORE = 0, 1
"""Servers on the first, Redis and the load on the second."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Of the process and of those that it started."""
    return sum(_own_cpu_seconds(each) for each in family_of(pid))


def pss_mib(pid: int) -> float:
    """Memory of the process and of those that it started; of pages that several processes share, its part."""
    return sum(_read_pss_kib(each) for each in family_of(pid)) / 1024


def family_of(pid: int) -> list[int]:
    """The process, and those that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family_of(int(child)))]


def await_idle(pid: int) -> None:
    """Until the process has done with what it was asked for, whether or not anybody still waits for it."""
    before, now = -1.0, cpu_seconds(pid)
    while now - before > 0.01:
        time.sleep(0.2)
        before, now = now, cpu_seconds(pid)


def _own_cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def _read_pss_kib(pid: int) -> int:
    return int(re.findall(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)[0])


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """What is started inside stays there."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(everywhere)[core % len(everywhere)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)
