"""The processor time of each callback of the event loops of this process.

`first_request.py` measures the imports of a request, so this module imports as little as possible.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def measuring_steps() -> Iterator[list[float]]:
    """Yield a list to which the seconds of each callback are appended."""
    steps: list[float] = []
    run = asyncio.Handle._run

    def run_measured(handle: asyncio.Handle) -> None:
        before = time.thread_time()
        run(handle)
        steps.append(time.thread_time() - before)

    asyncio.Handle._run = run_measured  # type: ignore[method-assign, assignment]
    try:
        yield steps
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
