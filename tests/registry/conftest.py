"""The fixtures of the tests of the registry."""

from collections.abc import AsyncIterator

import pytest
import redis

from service.registry.seed_file.apply import Seeding
from service.worker import Worker
from tests.conftest import Clock, MakeSettings
from tests.registry.seeds import make_seeding
from tests.store.sessions import Sessions


@pytest.fixture
async def worker(make_settings: MakeSettings, clock: Clock, store: redis.Redis) -> AsyncIterator[Worker]:
    """A worker with an empty registry. A sweep does not wait for requests under the old registration."""
    worker = Worker(make_settings(), lambda: clock.offset_ms)
    worker.pending_revocations.scan_delay_seconds = 0
    yield worker
    await worker.close()


@pytest.fixture
def seeding(worker: Worker) -> Seeding:
    return make_seeding(worker.redis)


@pytest.fixture
def sessions(worker: Worker, store: redis.Redis) -> Sessions:
    return Sessions(worker, store)
