"""What the tests of the registry share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis

from service.app import Parts
from service.registry import consequences
from service.registry.seeding import Seeding
from tests.conftest import Clock, MakeSettings
from tests.registry.seeds import make_seeding
from tests.store.sessions import Sessions


@pytest.fixture(autouse=True)
def no_worker_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep waits until no request under the old registration is under way; here there is none to wait for."""
    monkeypatch.setattr(consequences, "SWEEP_PAUSE_SECONDS", 0)


@pytest.fixture
async def parts(make_settings: MakeSettings, clock: Clock, store: redis.Redis) -> AsyncIterator[Parts]:
    """The service's parts over an empty registry."""
    parts = Parts(make_settings(), lambda: clock.offset_ms)
    yield parts
    await parts.close()


@pytest.fixture
def seeding(parts: Parts) -> Seeding:
    return make_seeding(parts.connection)


@pytest.fixture
def sessions(parts: Parts, store: redis.Redis) -> Sessions:
    return Sessions(parts, store)
