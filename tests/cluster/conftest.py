"""The fixtures of the cluster tests: a cluster of three masters with a replica each for the whole run."""

from collections.abc import AsyncIterator, Callable

import httpx2
import pytest

from service.app import build_app
from service.config.settings import Settings, load_settings
from service.worker import Worker
from tests.cluster.nodes import Cluster
from tests.conftest import SECRET_KEY, SEED, AnyRedis, http_client_for, running_lifespan


@pytest.fixture
def cluster(get_redis: Callable[[str], AnyRedis]) -> Cluster:
    cluster = get_redis("cluster")
    assert isinstance(cluster, Cluster)
    return cluster


@pytest.fixture
def cluster_settings(cluster: Cluster) -> Settings:
    """The settings of a service on an empty cluster."""
    cluster.client.flushall(target_nodes=cluster.client.PRIMARIES)
    return load_settings(
        {
            "REDIS_URL": cluster.url_of("service"),
            "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY,
            "TOKEN_SERVICE_SEED_FILE": str(SEED),
            "LOG_LEVEL": "warning",
        }
    )


@pytest.fixture
async def cluster_worker(cluster_settings: Settings) -> AsyncIterator[Worker]:
    """The worker behind `cluster_http`."""
    worker = Worker(cluster_settings, lambda: 0)
    yield worker
    await worker.close()


@pytest.fixture
async def cluster_http(cluster_worker: Worker) -> AsyncIterator[httpx2.AsyncClient]:
    """An HTTP client of a service on the cluster, with tests/seed.yaml as its seed."""
    app = build_app(cluster_worker)
    async with running_lifespan(app), http_client_for(app) as http:
        yield http
