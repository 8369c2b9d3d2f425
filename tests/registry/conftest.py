"""What the tests of the registry share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis

from service.registry import pending_revocations
from service.registry.seed_file.apply import Seeding
from service.worker import Worker
from tests.conftest import Clock, MakeSettings
from tests.registry.seeds import make_seeding
from tests.store.sessions import Sessions


@pytest.fixture(autouse=True)
def no_worker_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep waits until no request under the old registration is under way; here there is none to wait for."""
    monkeypatch.setattr(pending_revocations, "SCAN_DELAY_SECONDS", 0)


@pytest.fixture
async def parts(make_settings: MakeSettings, clock: Clock, store: redis.Redis) -> AsyncIterator[Worker]:
    """The service's parts over an empty registry."""
    parts = Worker(make_settings(), lambda: clock.offset_ms)
    yield parts
    await parts.close()


@pytest.fixture
def seeding(parts: Worker) -> Seeding:
    return make_seeding(parts.redis)


@pytest.fixture
def sessions(parts: Worker, store: redis.Redis) -> Sessions:
    return Sessions(parts, store)
