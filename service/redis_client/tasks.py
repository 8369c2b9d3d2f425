"""Time limits for tasks, and their cancellation."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeVar

Value = TypeVar("Value")


UNREAD_REPLY_SECONDS: Final = 0.1
"""The time after a limit in which an answer that has arrived may still be read.

Our own event loop may have been blocked.
"""


async def finish_within(task: asyncio.Task[Value], limit_seconds: float) -> Value:
    """Return the result of the task. Raises TimeoutError if it does not end in time.

    An answer that had arrived in time but was unread still counts. On return the task has ended, also after a
    cancellation.
    """
    try:
        for seconds in (limit_seconds, UNREAD_REPLY_SECONDS):
            done, _ = await asyncio.wait({task}, timeout=seconds)
            if done:
                return task.result()
    finally:
        await end_task(task)
    raise TimeoutError


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel the task and wait for its end. Its own exception is ignored; a cancellation of the caller propagates."""
    task.cancel()
    await asyncio.wait({task})
