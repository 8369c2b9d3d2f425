"""Each worker's cache of the registry: valid while Redis pushes invalidations, bounded, and not filled by garbage."""

import asyncio

import msgspec
import pytest
import redis

from service.gateway.access_record import PROBE_KEYS
from service.protocol.client import Client
from service.protocol.provider import IdentityProvider
from service.protocol.user import User, identify_user
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.managed_connection import ConnectionOptions
from service.redis_client.router import Router
from service.redis_client.url import parse_redis_url
from service.registry.cache import RegistryCaches
from service.store.keys import registry_key
from service.worker import Worker
from tests.redis_client.scripted_cluster import scripted_cluster
from tests.redis_client.scripted_redis import INVALIDATE, bulk
from tests.support.invalidations import await_invalidations
from tests.support.redis_monitor import ONE_SERVER, recording_commands

CAROL = User(realm="main", username="carol@example.com", roles=("enduser",))
ORIGIN = "https://app.example"

# The cache depends on the time, and nothing is heard of Redis while the time stands still.
pytestmark = pytest.mark.usefixtures("held_time")


def make_client(name: str = "One", client_id: str = "app") -> Client:
    return Client(client_id=client_id, client_name=name)


async def put_client(worker: Worker, client: Client) -> None:
    await worker.registry.clients.put(client)


async def remember(worker: Worker, client: Client) -> None:
    """Register the client and look it up twice, because it is cached from the second use on."""
    await put_client(worker, client)
    for _ in range(2):
        assert await worker.clients.find(client.client_id) == client


def count_reads(commands: list[str]) -> int:
    return sum(command.startswith(("GET", "EXISTS", "HMGET")) for command in commands)


@pytest.mark.clause("decided-registry-change-seen")
@ONE_SERVER
async def test_every_kind_of_record_is_remembered_and_followed(worker: Worker, store: redis.Redis) -> None:
    client = msgspec.structs.replace(make_client(), redirect_uris=(f"{ORIGIN}/x",))
    cep = IdentityProvider(issuer="https://cep.example", client_id="us")
    await worker.registry.clients.put(client)
    await worker.registry.realms.put("cep", cep)
    await worker.registry.users.put(CAROL)

    async def find_all() -> list[object]:
        user = await worker.users.find(CAROL.identity)
        return [
            await worker.clients.find("app"),
            await worker.caches.origins.find(ORIGIN),
            await worker.caches.realms.find("cep"),
            user and msgspec.structs.replace(user, revision=""),
        ]

    for _ in range(2):
        assert await find_all() == [client, True, cep, CAROL]
    with recording_commands(store) as commands:
        assert await find_all() == [client, True, cep, CAROL]
    assert count_reads(commands) == 0

    await worker.registry.realms.put("cep", msgspec.structs.replace(cep, name="CEP"))
    await worker.registry.users.put(msgspec.structs.replace(CAROL, disabled=True))
    await worker.registry.clients.delete(client)
    await await_invalidations(worker)

    gone, origin, realm, user = await find_all()
    assert (gone, origin) == (None, False)
    assert realm == msgspec.structs.replace(cep, name="CEP")
    assert isinstance(user, User)
    assert user.disabled


@pytest.mark.clause("decided-registry-change-seen")
async def test_when_everything_is_emptied_nothing_is_remembered(worker: Worker, store: redis.Redis) -> None:
    await remember(worker, make_client())
    store.flushall()
    await await_invalidations(worker)

    assert await worker.clients.find("app") is None


@pytest.mark.clause("decided-registry-change-seen")
async def test_added_record_is_seen_at_once(worker: Worker) -> None:
    client = msgspec.structs.replace(make_client(), redirect_uris=(f"{ORIGIN}/x",))
    cep = IdentityProvider(issuer="https://cep.example", client_id="us")

    async def find_all() -> list[object]:
        caches = worker.caches
        found = [await caches.clients.find("app"), await caches.origins.find(ORIGIN), await caches.realms.find("cep")]
        return [*found, await caches.users.find(CAROL.identity) is not None]

    for _ in range(2):
        assert await find_all() == [None, False, None, False]
    await put_client(worker, client)
    await worker.registry.realms.put("cep", cep)
    await worker.registry.users.put(CAROL)

    assert await find_all() == [client, True, cep, True]


async def test_garbage_is_not_tracked_by_redis(worker: Worker, store: redis.Redis) -> None:
    """An entry that is used once takes none either."""
    await put_client(worker, make_client())
    await worker.clients.find("app")
    before = store.info("stats")["tracking_total_keys"]
    for _ in range(3):
        assert await worker.clients.find("garbage") is None
        assert not await worker.caches.origins.find("https://garbage.example")
        assert await worker.users.find(identify_user("main", "garbage")) is None

    assert store.info("stats")["tracking_total_keys"] == before
    await worker.clients.find("app")
    assert store.info("stats")["tracking_total_keys"] == before + 1


@pytest.mark.clause("decided-registry-change-seen")
async def test_answer_older_than_an_invalidation_is_not_cached(worker: Worker) -> None:
    """The record changes between Redis's answer and the next use, again and again."""
    await remember(worker, make_client("0"))
    for number in range(1, 100):
        finding = asyncio.create_task(worker.clients.find("app"))
        await put_client(worker, make_client(str(number)))
        await finding
        await await_invalidations(worker)

        assert await worker.clients.find("app") == make_client(str(number))


async def test_unreadable_record_is_an_error_and_not_cached(worker: Worker, store: redis.Redis) -> None:
    store.set(registry_key("client", "broken"), "no record")
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await worker.clients.find("broken")
    store.delete(registry_key("client", "broken"))
    await remember(worker, make_client(client_id="broken"))


@ONE_SERVER
@pytest.mark.clause("decided-gateway-stops-trusting", "decided-i8-fail-closed")
async def test_nothing_is_remembered_beyond_the_trust_in_its_connection(worker: Worker, store: redis.Redis) -> None:
    """tests/gateway ends that trust by outages of every kind. Lookups of tokens have the same connection."""
    await remember(worker, make_client())
    (master,) = worker.redis.router.topology.list_known()
    master.reads.trust.end()

    with recording_commands(store) as commands:
        assert await worker.clients.find("app") == make_client()
    assert count_reads(commands) == 1


@pytest.mark.clause("decided-registry-change-seen", "decided-redis-cluster")
async def test_record_of_a_moved_slot_is_read_and_tracked_there() -> None:
    async with scripted_cluster(2) as cluster:
        first, second = cluster.nodes
        key = registry_key("client", "app")
        cluster.share(second, first)
        before = cluster.find_owner(key.encode())
        (after,) = {first, second} - {before}
        cluster.records[key.encode()] = bulk(msgspec.json.encode(make_client("One")))
        router = Router(ConnectionOptions(parse_redis_url(cluster.url), "registry", probe_keys=PROBE_KEYS))
        clients = RegistryCaches(router).clients
        assert [await clients.find("app") for _ in range(2)] == [make_client("One")] * 2

        cluster.share(first, second)
        cluster.records[key.encode()] = bulk(msgspec.json.encode(make_client("Two")))
        before.say(INVALIDATE % (len(key), key.encode()))
        while await clients.find("app") == make_client("One"):  # noqa: ASYNC110 - the news is under way
            await asyncio.sleep(0)
        for _ in range(5):
            assert await clients.find("app") == make_client("Two")

        assert after.count("GET", key) == 2
        await router.close()
