"""The fixtures of the races.

The instances are started once for each topology, and each test finds only the registry.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import cache

import httpx2
import pytest

from service.config.settings import load_settings
from service.worker import Worker
from tests.conftest import SECRET_KEY, starting_on_demand
from tests.races.instances import PLENTY, InstancePair, open_connections, running_instances


@pytest.fixture(scope="session")
def get_instances(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], InstancePair]]:
    """Return two instances that limit only wrong passwords per user name and address, to ten an hour.

    They have a Redis of their own and run to the end. In the Redis of other tests they would restore their registry.
    """
    with ExitStack() as running, starting_on_demand(tmp_path_factory) as get_redis:

        @cache
        def find(topology: str) -> InstancePair:
            instances = running_instances(
                tmp_path_factory.mktemp("races"),
                get_redis(topology),
                TOKEN_SERVICE_LOGIN_ATTEMPTS="10/hour",
                TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_USER=PLENTY,
                TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS=PLENTY,
                TOKEN_SERVICE_CLIENT_ATTEMPTS=PLENTY,
            )
            return running.enter_context(instances)

        yield find


@pytest.fixture
def instances(get_instances: Callable[[str], InstancePair], topology: str) -> InstancePair:
    instances = get_instances(topology)
    instances.clear()
    return instances


@pytest.fixture
async def http(instances: InstancePair) -> AsyncIterator[httpx2.AsyncClient]:
    """An HTTP client that sends requests to the two instances in turn."""
    async with instances.http() as http:
        await open_connections(http)
        yield http


@pytest.fixture
async def worker(instances: InstancePair) -> AsyncIterator[Worker]:
    """A worker beside the instances, to make codes as the consent page does and to change the registry."""
    worker = Worker(load_settings({"REDIS_URL": instances.url, "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY}), lambda: 0)
    yield worker
    await worker.close()
