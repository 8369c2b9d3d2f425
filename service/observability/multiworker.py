"""Metrics of several workers, read as one.

The workers share a private folder. Each worker has a numbered place in it, holds the place by a lock as long as the
worker lives, and keeps its numbers in the files of the place. A worker that replaces a dead one takes over its place
and goes on counting from its numbers. So no sum ever goes backwards, and the number of places depends on how many
workers ran at once, not on how many were started. Gauges of a dead worker, such as the length of its queue, are not
read any more.
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
    """Reserve the lowest free place of a worker in the folder until this process ends. Returns its number.

    The counts of the last holder stay, and its gauges are deleted.
    """
    make_private(folder, follow_symlinks=False)
    for place in count():
        if hold_lock(_lock_of(folder, place)) is not None:
            for gauge_file in folder.glob(f"gauge_*_{place}.db"):
                gauge_file.unlink()
            return place
    raise AssertionError("there is always one more place")


def _lock_of(folder: Path, place: int | str) -> Path:
    return folder / f"{place}.lock"


def share_counts(folder: Path) -> None:
    """Keep metrics that are created from now on in files of this folder, under a worker's place of their own."""
    place = _take_place(folder)
    values.ValueClass = values.MultiProcessValue(lambda: place)  # type: ignore[no-untyped-call]


class MultiWorkerCollector(Collector):
    """The collector of all workers of a folder. Dead workers contribute their counts, but not their gauges."""

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
    """Return True if the file has content. A starting worker may have deleted it, or have just created it empty."""
    with suppress(FileNotFoundError):
        return file.stat().st_size > 0
    return False


def _is_free(file: Path) -> bool:
    """Return True if no worker holds the lock."""
    lock = hold_lock(file)
    if lock is None:
        return False
    os.close(lock)
    return True
