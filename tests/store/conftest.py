"""The fixtures of the tests of the store."""

import pytest
import redis

from service.worker import Worker
from tests.store.pages import Pages
from tests.store.sessions import Sessions


@pytest.fixture
def sessions(worker: Worker, store: redis.Redis) -> Sessions:
    """Sessions with the default lifetimes."""
    return Sessions(worker, store)


@pytest.fixture
def pages(sessions: Sessions) -> Pages:
    return Pages(sessions)
