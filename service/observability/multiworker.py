"""Metrics of several workers, read as one.

The workers share a private folder. Each has a place there, which it holds by a lock for as long as it lives, and keeps
its numbers in files of that place. A worker that replaces a dead one takes its place and counts on from where that one
ended. So no sum ever goes backwards, and there are no more files than there were workers at once. What a dead worker
said of its present state, such as the length of its queue, is not read any more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path

from prometheus_client import Metric, values
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from service.system.private_files import hold_lock, make_private


def _take_place(folder: Path) -> int:
    """The first place that nobody holds; it stays ours, with what its last holder counted, until we end."""
    make_private(folder, follow_symlinks=False)
    for place in count():
        if hold_lock(_lock_of(folder, place)) is not None:
            for said in folder.glob(f"gauge_*_{place}.db"):
                said.unlink()
            return place
    raise AssertionError("there is always one more place")


def _lock_of(folder: Path, place: int | str) -> Path:
    return folder / f"{place}.lock"


def share_counts(folder: Path) -> None:
    """From here on metrics are kept in files of our place, and not in memory."""
    place = _take_place(folder)
    values.ValueClass = values.MultiProcessValue(lambda: place)  # type: ignore[no-untyped-call]


class MultiWorkerCollector(Collector):
    """The workers of a folder, the dead ones included as far as what they counted goes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        dead = {lock.stem for lock in self._folder.glob("*.lock") if _is_free(lock)}
        files = [
            str(file)
            for file in sorted(self._folder.glob("*.db"))
            if _is_written(file) and not (file.name.startswith("gauge_") and file.stem.rpartition("_")[2] in dead)
        ]
        found: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]
        return sorted(found, key=lambda metric: metric.name)


def _is_written(file: Path) -> bool:
    """A worker that starts has taken it away, or has only just made it."""
    with suppress(FileNotFoundError):
        return file.stat().st_size > 0
    return False


def _is_free(file: Path) -> bool:
    lock = hold_lock(file)
    if lock is None:
        return False
    os.close(lock)
    return True
