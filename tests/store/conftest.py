"""What the tests of the store share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from service.app import Parts
from tests.loop_time import LoopTime
from tests.store.pages import Pages
from tests.store.passing import Passing, noting_traffic
from tests.store.sessions import Sessions


@pytest.fixture
def sessions(parts: Parts, store: redis.Redis) -> Sessions:
    """Sessions with the default lifetimes."""
    return Sessions(parts, store)


@pytest.fixture
def pages(sessions: Sessions) -> Pages:
    return Pages(sessions)


@pytest.fixture
def passing(held_time: LoopTime) -> Iterator[Passing]:
    """Time stands still. Ask for it before what connects to Redis."""
    with noting_traffic() as traffic:
        yield Passing(held_time, traffic)
