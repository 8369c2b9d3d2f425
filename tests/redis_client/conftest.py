"""The fixtures that the tests of the Redis client share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.redis_client.passing import Passing, noting_traffic
from tests.support.loop_time import LoopTime


@pytest.fixture
def passing(held_time: LoopTime) -> Iterator[Passing]:
    """Time stands still. Ask for it before what connects to Redis."""
    with noting_traffic() as traffic:
        yield Passing(held_time, traffic)
