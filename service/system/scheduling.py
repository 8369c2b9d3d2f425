"""The processor cores of this process, and the priority of its threads."""

from __future__ import annotations

import contextlib
import os
from typing import Final

LOWER_BY: Final = 10
"""The niceness that `lower_thread_priority` adds. The thread then gets a tenth of the time of a busy normal thread."""


def count_usable_cores() -> int:
    """Return the number of processor cores on which this process may run."""
    return len(os.sched_getaffinity(0))


LEAST_PRIORITY: Final = 19
"""The niceness of the lowest priority. Beside an import with half of it, a refresh had three times the p99."""


def lower_thread_priority(by: int = LOWER_BY) -> None:
    """Let the calling thread give way to threads of normal priority. It still has all time that they leave.

    No effect if a sandbox forbids it. A thread cannot raise its priority again without a privilege.
    """
    with contextlib.suppress(OSError):
        os.nice(by)
