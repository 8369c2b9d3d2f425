"""What the tests of the store share."""

from __future__ import annotations

import pytest
import redis

from service.app import Parts
from tests.store.pages import Pages
from tests.store.sessions import Sessions


@pytest.fixture
def sessions(parts: Parts, store: redis.Redis) -> Sessions:
    """Sessions with the default lifetimes."""
    return Sessions(parts, store)


@pytest.fixture
def pages(sessions: Sessions) -> Pages:
    return Pages(sessions)
