"""A connection to Redis that is closed while it is used for the first time leaves nothing open."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from service.redis_client.deadline import StoreUnavailable
from service.redis_client.url import Durability, parse_redis_url
from service.store.client import StoreClient
from tests.conftest import MakeSettings

TURNS = 80
"""More turns of the event loop than the work needs on any of the three topologies."""


async def read(connection: StoreClient) -> None:
    await connection.read("GET", "key")


async def change_durably(connection: StoreClient) -> None:
    """The work is given up before anything confirms it, since that would take as long as a request may."""
    with suppress(ZeroDivisionError):
        async with connection.durable("abc") as durable:
            await durable.leave_fence()
            raise ZeroDivisionError


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("work", [read, change_durably])
async def test_closing_during_a_connect_leaks_no_socket(
    make_settings: MakeSettings, work: Callable[[StoreClient], Awaitable[None]]
) -> None:
    url = make_settings().redis_url
    assert url is not None
    before, tasks = count_open_files(), asyncio.all_tasks()
    left_open = []
    for turns in range(TURNS):
        connection = StoreClient(parse_redis_url(url), durability=Durability("replica"))
        task = asyncio.ensure_future(work(connection))
        for _ in range(turns):
            await asyncio.sleep(0)
        await connection.close()
        task.cancel()
        with suppress(StoreUnavailable, asyncio.CancelledError):
            await task
        # An aborted connection is closed in the next turn.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if count_open_files() != before:
            left_open.append(turns)
            before = count_open_files()

    assert left_open == []
    assert asyncio.all_tasks() == tasks
