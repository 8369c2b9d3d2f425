"""The fixtures of the fault tests. Each test heals what it broke, and finds only the registry."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import httpx2
import pytest

from service.worker import Worker
from tests.faults.deployment import Deployment, http_client_for, worker_on
from tests.faults.proxy import running_proxy
from tests.support.servers import get_other_server, running_service


@pytest.fixture(scope="package")
def shared_deployment(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """The deployment of all tests.

    With a parameter it runs on that server of `other_servers`, without `proxied_service`.
    """
    folder = tmp_path_factory.mktemp("faults")
    other = getattr(request, "param", "found")
    deployment = Deployment(folder, binary=None if other == "found" else get_other_server(other))
    with ExitStack() as running:
        running.callback(deployment.close)
        deployment.proxy = running.enter_context(running_proxy(deployment.redis.port))
        deployment.direct_service = running.enter_context(running_service(folder, deployment.environment()))
        if other == "found":
            proxied = deployment.environment(REDIS_URL=deployment.proxy.url)
            deployment.proxied_service = running.enter_context(running_service(folder, proxied))
        yield deployment


@pytest.fixture
def deployment(shared_deployment: Deployment) -> Deployment:
    shared_deployment.proxy.heal()
    shared_deployment.clear()
    return shared_deployment


@pytest.fixture
async def direct_http(deployment: Deployment) -> AsyncIterator[httpx2.AsyncClient]:
    """The instance that speaks to Redis itself."""
    async with http_client_for(deployment.direct_service) as http:
        yield http


@pytest.fixture
async def proxied_http(deployment: Deployment) -> AsyncIterator[httpx2.AsyncClient]:
    """The instance that the proxy stands in front of."""
    async with http_client_for(deployment.proxied_service) as http:
        yield http


@pytest.fixture
async def worker(deployment: Deployment) -> AsyncIterator[Worker]:
    """The store below HTTP, straight to Redis."""
    async with worker_on(deployment) as worker:
        yield worker
