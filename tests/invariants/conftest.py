"""The fixtures of the tests of the invariants."""

import httpx2
import pytest
import redis

from service.worker import Worker
from tests.conftest import Clock
from tests.invariants.operations import Operations
from tests.store.sessions import Sessions


@pytest.fixture
def operations(http: httpx2.AsyncClient, worker: Worker, clock: Clock) -> Operations:
    return Operations(http, worker, clock)


@pytest.fixture
def sessions(worker: Worker, store: redis.Redis) -> Sessions:
    return Sessions(worker, store)
