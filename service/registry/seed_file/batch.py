"""Entries of a seed that are compared and applied together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from service.redis_client.lock import RedisLock
from service.registry.seed_file.plan import Planned
from service.store.registry import LOCK_SECONDS

Item = TypeVar("Item")


Renew = Callable[[], Awaitable[None]]


async def write_nothing(_: RedisLock) -> None:
    """Do nothing: the entry is in force already."""


class Batch(NamedTuple):
    """Entries of one kind after their comparison with Redis. `entries` counts those that are in the file.

    `unclear` are changes that are only reported, because it is not known which fields of the entry were edited.
    """

    entries: int
    planned: tuple[Planned, ...] = ()
    write: Callable[[RedisLock], Awaitable[None]] = write_nothing
    plain_passwords: int = 0
    unclear: tuple[Planned, ...] = ()


class ApplyOptions(NamedTuple):
    """The options for applying a seed. `renew` is called during long work and renews the lock."""

    force: bool
    prune: bool
    renew: Renew


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


Result = TypeVar("Result")


async def renewing(lock: RedisLock, work: Awaitable[Result]) -> Result:
    """Wait for long work, and renew the lock until it is done. Returns the result of the work."""
    task: asyncio.Future[Any] = asyncio.ensure_future(work)
    while not (await asyncio.wait([task], timeout=LOCK_SECONDS / 4))[0]:
        await lock.renew()
    result: Result = task.result()
    return result


Progress = Callable[[int, int], None]


def ignore_progress(_done: int, _total: int) -> None:
    """Ignore the progress."""


async def do_nothing() -> None:
    """Do nothing: a dry run has no lock to renew."""
