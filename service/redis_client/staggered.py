"""Staggered attempts at several addresses or servers, so that a silent one does not delay the others.

`asyncio.staggered` of the standard library does the same, but is not documented.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

ASK_SECONDS: Final = 1.5
"""The time limit for Sentinels, or nodes of a cluster, to report where the masters are."""

ASK_PAUSE_SECONDS: Final = 0.3
"""If a Sentinel or a node stays silent for this long, the next one is asked in parallel."""

Result = TypeVar("Result")


class NoneSucceeded(Exception):
    """The error if all attempts failed. `errors` holds the error of each, in the order in which they failed."""

    def __init__(self, errors: Sequence[BaseException]) -> None:
        super().__init__("; ".join(dict.fromkeys(str(error) or type(error).__name__ for error in errors)))
        self.errors = errors


async def get_first(
    attempts: Sequence[Callable[[], Coroutine[Any, Any, Result]]],
    *,
    pause_seconds: float,
    discard: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Return the result of the first attempt that succeeds, and cancel the others.

    An attempt begins when the previous one fails, or `pause_seconds` after the previous one began. `discard` is called
    with each result that came too late to be the first. Raises NoneSucceeded if all attempts fail. The caller sets the
    time limit for all of them.
    """
    errors: list[BaseException] = []
    running: set[asyncio.Task[Result]] = set()
    winner: asyncio.Task[Result] | None = None
    waiting = list(reversed(attempts))
    try:
        while waiting or running:
            if waiting:
                latest = asyncio.create_task(waiting.pop()())
                running.add(latest)
                next_at = time.monotonic() + pause_seconds
            while running and not (waiting and latest.done()):
                timeout = max(0, next_at - time.monotonic()) if waiting else None
                done, running = await asyncio.wait(running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
                succeeded = [task for task in done if not task.cancelled() and task.exception() is None]
                if succeeded:
                    winner = succeeded.pop()
                    running.update(succeeded)
                    return winner.result()
                errors += [error for task in done if not task.cancelled() and (error := task.exception())]
        raise NoneSucceeded(errors)
    finally:
        for task in running:
            task.add_done_callback(functools.partial(_settle_late, discard))
            task.cancel()
        if winner is None and running:
            await asyncio.wait(running)


def _settle_late(discard: Callable[[Result], None], late: asyncio.Task[Result]) -> None:
    """Discard the result of a task that is no longer needed. Its error is read, so that asyncio does not warn of it."""
    if not late.cancelled() and late.exception() is None:
        discard(late.result())
