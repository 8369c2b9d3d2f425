"""What the tests of the registry share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis

from service.registry.seed_file.apply import Seeding
from service.worker import Worker
from tests.conftest import Clock, MakeSettings
from tests.registry.seeds import make_seeding
from tests.store.sessions import Sessions


@pytest.fixture
async def parts(make_settings: MakeSettings, clock: Clock, store: redis.Redis) -> AsyncIterator[Worker]:
    """The service's parts over an empty registry. A sweep does not wait for requests under the old registration."""
    parts = Worker(make_settings(), lambda: clock.offset_ms)
    parts.pending_revocations.scan_delay_seconds = 0
    yield parts
    await parts.close()


@pytest.fixture
def seeding(parts: Worker) -> Seeding:
    return make_seeding(parts.redis)


@pytest.fixture
def sessions(parts: Worker, store: redis.Redis) -> Sessions:
    return Sessions(parts, store)
