"""What the tests of the invariants share."""

from __future__ import annotations

import httpx2
import pytest
import redis

from service.worker import Worker
from tests.conftest import Clock
from tests.invariants.life import Life
from tests.store.sessions import Sessions


@pytest.fixture
def life(http: httpx2.AsyncClient, parts: Worker, clock: Clock) -> Life:
    return Life(http, parts, clock)


@pytest.fixture
def sessions(parts: Worker, store: redis.Redis) -> Sessions:
    return Sessions(parts, store)
