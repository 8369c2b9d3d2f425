"""The processor time of each callback of the event loops of this process. It imports next to nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def watching_steps() -> Iterator[list[float]]:
    """Note the seconds of each callback, in their order."""
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
