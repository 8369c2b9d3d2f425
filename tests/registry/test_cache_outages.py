"""The cache of the registry while Redis is lost, frozen, replaced or cut off: it is never used past the bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from service.gateway.access_record import PROBE_KEYS
from service.protocol.client import Client
from service.redis_client.deadline import DEADLINE_SECONDS, StoreUnavailable
from service.redis_client.managed_connection import TRUSTED_SECONDS, ConnectionOptions
from service.redis_client.router import Router
from service.redis_client.tracked_cache import Trust
from service.redis_client.url import parse_redis_url
from service.registry.cache import RegistryCaches
from service.store.keys import registry_key
from service.worker import Worker
from tests.faults.deployment import Deployment, proxied_redis, worker_on
from tests.redis_client.scripted_cluster import scripted_cluster
from tests.redis_client.scripted_redis import INVALIDATE, bulk
from tests.support.loop_time import LoopTime
from tests.support.waiting import until

APP = Client(client_id="app", client_name="One")
CHANGED = Client(client_id="app", client_name="Two")
MOMENT_SECONDS = 0.01

pytestmark = pytest.mark.usefixtures("held_time")


@pytest.fixture(scope="module")
def shared_deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with proxied_redis(tmp_path_factory.mktemp("registry")) as deployment:
        yield deployment


@pytest.fixture
def deployment(shared_deployment: Deployment) -> Deployment:
    shared_deployment.proxy.heal()
    shared_deployment.store.flushall()
    return shared_deployment


@pytest.fixture
async def worker(deployment: Deployment) -> AsyncIterator[Worker]:
    """A worker connected directly to Redis."""
    async with worker_on(deployment) as worker:
        await put(worker, APP)
        yield worker


@pytest.fixture
async def proxied_caches(deployment: Deployment) -> AsyncIterator[RegistryCaches]:
    """Caches connected through the proxy."""
    async with caches_at(deployment.proxy.url) as caches:
        yield caches


@asynccontextmanager
async def caches_at(url: str) -> AsyncIterator[RegistryCaches]:
    """Caches with connections of their own."""
    router = Router(ConnectionOptions(parse_redis_url(url), "registry", probe_keys=PROBE_KEYS))
    yield RegistryCaches(router)
    await router.close()


async def put(worker: Worker, client: Client) -> None:
    await worker.registry.clients.put(client)


async def remember(caches: RegistryCaches) -> None:
    for _ in range(2):
        assert await caches.clients.find("app") == APP


def find_trust(caches: RegistryCaches) -> Trust:
    """Return the trust in the only connection of the caches."""
    (master,) = caches._router.topology.list_known()
    return master.reads.trust


async def let_trust_end(caches: RegistryCaches, held_time: LoopTime) -> None:
    """Move the time to the end of the trust. Until then the cache answers, and no later beat is valid."""
    until_seconds, now_seconds = find_trust(caches).until, held_time.read()
    assert now_seconds < until_seconds <= now_seconds + TRUSTED_SECONDS  # the sum is rounded as the service rounds it
    held_time.advance(until_seconds - now_seconds - MOMENT_SECONDS)
    assert await caches.clients.find("app") == APP
    held_time.advance(2 * MOMENT_SECONDS)


async def fails_in_time(caches: RegistryCaches, held_time: LoopTime) -> None:
    """Assert that a request to a silent Redis fails when its time is over, at the latest."""
    asking = asyncio.create_task(caches.clients.find("app"))
    await held_time.advance_in_steps(DEADLINE_SECONDS)
    await until(asking.done, "the error")
    with pytest.raises(StoreUnavailable):
        await asking


async def comes_back(caches: RegistryCaches, client: Client, held_time: LoopTime) -> None:
    """Ask until Redis answers. Until then there are errors only. Time passes, since the connection may pause."""

    async def ask() -> Client | None:
        while True:
            try:
                return await caches.clients.find("app")
            except StoreUnavailable:
                await asyncio.sleep(0)

    with held_time.running_at(1):
        asking = asyncio.create_task(ask())
        await until(asking.done, "the registry to come back")
    assert asking.result() == client


@pytest.mark.clause("decided-registry-change-seen", "decided-gateway-stops-trusting", "decided-i8-fail-closed")
async def test_cut_network_leaves_the_cache_stale_for_a_second(
    deployment: Deployment, worker: Worker, proxied_caches: RegistryCaches, held_time: LoopTime
) -> None:
    await remember(proxied_caches)
    with deployment.cut_off():
        await put(worker, CHANGED)
        await let_trust_end(proxied_caches, held_time)
        await fails_in_time(proxied_caches, held_time)

    await comes_back(proxied_caches, CHANGED, held_time)


@pytest.mark.clause("decided-registry-change-seen", "decided-redis-cluster")
async def test_record_of_a_moved_slot_is_read_and_tracked_there() -> None:
    async with scripted_cluster(2) as cluster:
        first, second = cluster.nodes
        key = registry_key("client", "app")
        cluster.share(second, first)
        before = cluster.find_owner(key.encode())
        (after,) = {first, second} - {before}
        cluster.records[key.encode()] = bulk(msgspec.json.encode(APP))
        async with caches_at(cluster.url) as caches:
            await remember(caches)

            cluster.share(first, second)
            cluster.records[key.encode()] = bulk(msgspec.json.encode(CHANGED))
            before.say(INVALIDATE % (len(key), key.encode()))
            while await caches.clients.find("app") == APP:  # noqa: ASYNC110 - the news is under way
                await asyncio.sleep(0)
            for _ in range(5):
                assert await caches.clients.find("app") == CHANGED

            assert after.count("GET", key) == 2
