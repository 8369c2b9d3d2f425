"""Clocks and time limits for the work on Redis, its errors, and one error for every kind of outage."""

from __future__ import annotations

import asyncio
import functools
import re
import sys
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, TypeVar

DEADLINE_SECONDS: Final = 1.8
CONNECT_SECONDS: Final = 1.5
ENOUGH_SECONDS: Final = 0.2

UNREAD_REPLY_SECONDS: Final = 0.1
"""The time after a limit in which an answer that has arrived may still be read.

Our own event loop may have been blocked.
"""

read_clock: Callable[[], float] = time.monotonic
"""Return seconds by a clock that is never set. On Linux it continues while the machine sleeps."""
if sys.platform == "linux":
    read_clock = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)

# Errors of a Redis that is up and cannot serve. The word begins the error, or a script's error quotes it.
# - Redis 7.0 and Valkey have texts of their own for an action that a script may not do, for keys on another node, and
#   for a script that an operator ended.
# - A server may lack WAIT.
_OUTAGE: Final = re.compile(
    r"\b(OOM|READONLY|MISCONF|LOADING|BUSY|NOREPLICAS|CLUSTERDOWN|TRYAGAIN|MASTERDOWN|UNBLOCKED|NOPERM)\b"
    r"|The user executing the script can't|ACL failure in script"
    r"|(?i:access a non[ -]local key)|Script killed by user|unknown command .?WAIT\b"
)
# Errors of Redis and of our scripts for a record that another version of the service wrote.
_UNREADABLE: Final = re.compile(r"\bWRONGTYPE\b|UNREADABLE")
# Errors that only a mistake in our own scripts or commands causes.
_FAULT: Final = re.compile(r"user_script|unknown command|wrong number of arguments|same slot")

Result = TypeVar("Result")
CallObserver = Callable[[str, float, bool], None]
"""A function called after each call with its kind or script name, its duration in seconds, and True if it failed."""


class RedisError(Exception):
    """Base of everything that a server or its connection may raise."""


class ResponseError(RedisError):
    """An error that the server answered. Its text begins with the server's word for it, such as WRONGTYPE."""


class NoScriptError(ResponseError):
    """The server does not know the script, so nothing ran."""


class ConnectionLost(RedisError):
    """The connection ended before the answer came. That answer will never be read."""


class NotSent(ConnectionLost):
    """The connection had ended before the command was sent, so the command may be sent elsewhere."""


class StoreUnavailable(Exception):
    """Redis did not answer in time, or answered that it cannot serve. The command may have run."""


class UnreadableRecord(StoreUnavailable):
    """A record has another version or form than this code knows. Others may be readable."""


async def watch_call(watch: CallObserver, call: str, work: Awaitable[Result]) -> Result:
    """Do the work and report it to `watch`."""
    started = time.perf_counter()
    try:
        answer = await work
    except StoreUnavailable:
        watch(call, time.perf_counter() - started, True)
        raise
    watch(call, time.perf_counter() - started, False)
    return answer


class Budget:
    """The time that the Redis work of one request may still take."""

    __slots__ = ("remaining_seconds",)

    def __init__(self) -> None:
        self.remaining_seconds = DEADLINE_SECONDS


_budget: ContextVar[Budget | None] = ContextVar("budget", default=None)


def start_budget() -> None:
    """Let all later calls in this task share DEADLINE_SECONDS of waiting for Redis.

    Other time is not counted. Without a budget each call has a deadline of its own.
    """
    _budget.set(Budget())


async def with_own_budget(work: Awaitable[Result]) -> Result:
    """Do one of several concurrent pieces of work under a budget of its own.

    Run each in a task of its own, since a budget belongs to a task.
    """
    start_budget()
    return await work


def remaining_seconds() -> float:
    """Return the seconds that the Redis work of this request may still take."""
    budget = _budget.get()
    return DEADLINE_SECONDS if budget is None else budget.remaining_seconds


def charge(started: float) -> None:
    """Subtract the time since `started` (monotonic clock) from the budget, for work without its own time limit."""
    budget = _budget.get()
    if budget is not None:
        budget.remaining_seconds -= time.monotonic() - started


def charge_wait(started: float) -> None:
    """Subtract a wait behind other requests, for Redis or for hashing, from the budget.

    `started`, by the monotonic clock, is when the wait began. A wait alone does not reduce the budget below
    ENOUGH_SECONDS, in which a Redis that is up can answer.
    """
    budget = _budget.get()
    if budget is not None:
        left = budget.remaining_seconds - (time.monotonic() - started)
        budget.remaining_seconds = min(budget.remaining_seconds, max(left, ENOUGH_SECONDS))


async def within_deadline(work: Awaitable[Result], *, started: float | None = None) -> Result:
    """Wait for work on Redis as long as the request's budget lasts. Raises StoreUnavailable for any outage.

    `started`, by the monotonic clock, is when an earlier part of the same work began, if there was one.
    """
    now = time.monotonic()
    started = now if started is None else started
    try:
        async with asyncio.timeout(remaining_seconds() - (now - started)):
            return await work
    except (TimeoutError, OSError, RedisError) as error:
        raise translate(error) from error
    finally:
        charge(started)


def translate(error: Exception) -> Exception:
    """Return StoreUnavailable for an outage. Errors that our own scripts or commands caused are returned unchanged.

    NoScriptError is returned unchanged: nothing ran, and the script may be sent again with its text.
    """
    text = str(error)
    if _UNREADABLE.search(text):
        return UnreadableRecord(text)
    if isinstance(error, NoScriptError) or (_FAULT.search(text) and not _OUTAGE.search(text)):
        return error
    if isinstance(error, TimeoutError) and not text:
        text = f"Redis did not respond within {DEADLINE_SECONDS} s"
    return StoreUnavailable(f"{type(error).__name__}: {text}")


async def finish_within(task: asyncio.Future[Result], limit_seconds: float) -> Result:
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


async def end_task(task: asyncio.Future[Any]) -> None:
    """Cancel the task and wait for its end. Its own exception is ignored; a cancellation of the caller propagates."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # asyncio logs an exception that nobody retrieved, also the one of a cancelled `gather`
