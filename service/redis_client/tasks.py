"""Tasks with a time limit, and their end."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeVar

Value = TypeVar("Value")


UNREAD_REPLY_SECONDS: Final = 0.1
"""An answer that lies there unread is heard before its time limit is held against it: our own loop stood still."""


async def finish_within(task: asyncio.Task[Value], limit_seconds: float) -> Value:
    """Return the result of the task. Raises TimeoutError if there is none in time, and none that lies there unread.

    The task has ended then, and after a cancellation as well.
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
