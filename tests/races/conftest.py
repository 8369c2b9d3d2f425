"""The arena is started once for all races; each test finds it empty but for the registry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest

from service.app import Parts
from service.settings import load_settings
from tests.conftest import SECRET_KEY
from tests.races.arena import PLENTY, Arena, open_connections, running_arena


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """Two instances that limit wrong passwords per user name and address only, to ten a minute."""
    with running_arena(
        tmp_path_factory.mktemp("races"),
        TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_USER=PLENTY,
        TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS=PLENTY,
        TOKEN_SERVICE_CLIENT_ATTEMPTS=PLENTY,
    ) as arena:
        yield arena


@pytest.fixture
def arena(running: Arena) -> Arena:
    running.clear()
    return running


@pytest.fixture
async def http(arena: Arena) -> AsyncIterator[httpx2.AsyncClient]:
    """Requests go to the two instances in turn."""
    async with arena.http() as http:
        await open_connections(http)
        yield http


@pytest.fixture
async def parts(arena: Arena) -> AsyncIterator[Parts]:
    """Beside the instances: to make codes as the consent page would, and to change what is registered."""
    port = arena.store.connection_pool.connection_kwargs["port"]
    url = f"redis://127.0.0.1:{port}/0"
    parts = Parts(load_settings({"REDIS_URL": url, "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY}), lambda: 0)
    yield parts
    await parts.close()
