"""The core, the processor time and the memory of the measured processes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SERVER_CORE, LOAD_CORE = 0, 1
"""Servers run on the first core. Redis and the load generator run on the second."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the processor time of the process and its descendants."""
    return sum(_own_cpu_seconds(each) for each in process_tree_of(pid))


def pss_mib(pid: int) -> float:
    """Return the memory of the process and its descendants, as proportional set size (PSS)."""
    return sum(_read_pss_kib(each) for each in process_tree_of(pid)) / 1024


def process_tree_of(pid: int) -> list[int]:
    """Return the ids of the process and its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in process_tree_of(int(child)))]


def await_idle(pid: int) -> None:
    """Wait until the process takes no more processor time.

    It may still work on requests whose clients have closed their connections.
    """
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
    """Pin this process to the core while the block runs. Processes that it starts in the block stay there."""
    on_all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(on_all_cores)[core % len(on_all_cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, on_all_cores)
