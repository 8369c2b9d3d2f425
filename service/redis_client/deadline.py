"""How long all the Redis work of a request may take, and one error for every kind of outage."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Final, TypeVar

from .errors import NoScriptError, RedisError

DEADLINE_SECONDS: Final = 1.8
CONNECT_SECONDS: Final = 1.5
ENOUGH_SECONDS: Final = 0.2

# What a Redis that is up says when it cannot serve, as the first word of its error or quoted by a script's error; what
# it (WRONGTYPE) and our scripts say of a record that another version wrote; what Redis 7.0 and Valkey say of what a
# script may not do, of keys on another node, and of a script that an operator ended; and that there is no WAIT.
_OUTAGE: Final = re.compile(
    r"\b(OOM|READONLY|MISCONF|LOADING|BUSY|NOREPLICAS|CLUSTERDOWN|TRYAGAIN|MASTERDOWN|UNBLOCKED|NOPERM|WRONGTYPE)\b"
    r"|UNKNOWNVERSION|The user executing the script can't|ACL failure in script"
    r"|(?i:access a non[ -]local key)|Script killed by user|unknown command .?WAIT\b"
)
# What only a mistake in our own scripts or commands leads to.
_FAULT: Final = re.compile(r"user_script|unknown command|wrong number of arguments|same slot")

Result = TypeVar("Result")
CallObserver = Callable[[str, float, bool], None]
"""Told of each call: its kind or script, how many seconds it took, and whether it came to nothing."""


class StoreUnavailable(Exception):
    """Redis did not answer in time, or answered that it cannot serve. Nothing is known about what it did."""


def ignore_call(call: str, seconds: float, failed: bool) -> None:
    pass


class Budget:
    """The time that the Redis work of one request may still take."""

    __slots__ = ("remaining_seconds",)

    def __init__(self) -> None:
        self.remaining_seconds = DEADLINE_SECONDS


_budget: ContextVar[Budget | None] = ContextVar("budget", default=None)


def start_budget() -> None:
    """From here on, in this task, all calls share one deadline. Without it each call has one of its own."""
    _budget.set(Budget())


async def with_own_budget(work: Awaitable[Result]) -> Result:
    """Do work that is one of several at the same time. Each needs a task, since a budget belongs to a task."""
    start_budget()
    return await work


def remaining_seconds() -> float:
    """What the Redis work of this request may still take."""
    budget = _budget.get()
    return DEADLINE_SECONDS if budget is None else budget.remaining_seconds


def charge(started: float) -> None:
    """Takes from the budget what work without a time limit of its own took since then, by the monotonic clock."""
    budget = _budget.get()
    if budget is not None:
        budget.remaining_seconds -= time.monotonic() - started


def charge_wait(started: float) -> None:
    """The same for a wait behind others who ask Redis, or hash; a Redis that is up can answer in what is left."""
    budget = _budget.get()
    if budget is not None:
        left = budget.remaining_seconds - (time.monotonic() - started)
        budget.remaining_seconds = min(budget.remaining_seconds, max(left, ENOUGH_SECONDS))


async def within_deadline(work: Awaitable[Result], *, started: float | None = None) -> Result:
    """Waits for work on Redis as long as the request's budget lasts; raises StoreUnavailable for any outage.

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
    """A fault in one of our own scripts or commands is no outage; everything else that Redis can do to us is.

    NoScriptError stays what it is: nothing ran, and the script may be sent again with its text.
    """
    text = str(error)
    if isinstance(error, NoScriptError) or (_FAULT.search(text) and not _OUTAGE.search(text)):
        return error
    if isinstance(error, TimeoutError) and not text:
        text = f"no answer within the {DEADLINE_SECONDS} s that the Redis work of a request may take"
    return StoreUnavailable(f"{type(error).__name__}: {text}")
