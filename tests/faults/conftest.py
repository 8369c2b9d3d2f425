"""One stage for all faults; each test leaves it whole, and finds it empty but for the registry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest

from service.worker import Worker
from tests.faults.proxy import running_proxy
from tests.faults.stage import Stage, client_of, worker_on
from tests.support.servers import other_binaries, running_service


@pytest.fixture(scope="package")
def built_stage(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """With a parameter on that server of `other_binaries`, and without the instance beyond the proxy."""
    folder = tmp_path_factory.mktemp("faults")
    if hasattr(request, "param") and request.param != "found":
        stage = Stage(folder, binary=other_binaries()[request.param])
        try:
            with running_proxy(stage.redis.port) as proxy, running_service(folder, stage.environment()) as direct:
                stage.proxy, stage.direct = proxy, direct
                yield stage
        finally:
            stage.close()
        return
    stage = Stage(folder)
    try:
        with running_proxy(stage.redis.port) as proxy, running_service(folder, stage.environment()) as direct:
            stage.proxy, stage.direct = proxy, direct
            with running_service(folder, stage.environment(REDIS_URL=proxy.url)) as beyond:
                stage.beyond = beyond
                yield stage
    finally:
        stage.close()


@pytest.fixture
def stage(built_stage: Stage) -> Stage:
    built_stage.proxy.heal()
    built_stage.clear()
    return built_stage


@pytest.fixture
async def direct(stage: Stage) -> AsyncIterator[httpx2.AsyncClient]:
    """The instance that speaks to Redis itself."""
    async with client_of(stage.direct) as http:
        yield http


@pytest.fixture
async def beyond(stage: Stage) -> AsyncIterator[httpx2.AsyncClient]:
    """The instance that the proxy stands in front of."""
    async with client_of(stage.beyond) as http:
        yield http


@pytest.fixture
async def worker(stage: Stage) -> AsyncIterator[Worker]:
    """The store below HTTP, straight to Redis."""
    async with worker_on(stage) as worker:
        yield worker
