"""The registry's memory while Redis is lost, frozen, replaced or cut off: never believed longer than the bound says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from service.app import Parts
from service.protocol.client import Client
from service.registry.cache import RegistryMemory
from service.settings import load_settings
from service.store import topology
from service.store.deadline import DEADLINE_SECONDS, StoreUnavailable
from service.store.keys import registry_key
from service.store.links import TRUSTED_SECONDS
from service.store.redis_url import parse_redis_url
from tests.conftest import SECRET_KEY
from tests.fair_clock import read_fair_clock
from tests.faults.proxy import running_proxy
from tests.faults.stage import Stage, parts_on
from tests.hearing import heard
from tests.servers import start_redis, stop
from tests.store.scripted_cluster import scripted_cluster
from tests.store.scripted_redis import INVALIDATE, bulk
from tests.waiting import until

APP = Client(client_id="app", client_name="One")
CHANGED = Client(client_id="app", client_name="Two")
LATEST_SECONDS = 2.0
BACK_SECONDS = 2.5


@pytest.fixture(scope="module")
def built_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("registry"))
    with running_proxy(stage.redis.port) as proxy:
        stage.proxy = proxy
        yield stage
    stage.store.close()
    stop(stage.redis.process)


@pytest.fixture
def stage(built_stage: Stage) -> Stage:
    built_stage.proxy.heal()
    built_stage.store.flushall()
    return built_stage


@pytest.fixture
async def parts(stage: Stage) -> AsyncIterator[Parts]:
    """Straight to Redis."""
    async with parts_on(stage) as parts:
        await put(parts, APP)
        yield parts


@pytest.fixture
async def beyond(stage: Stage) -> AsyncIterator[RegistryMemory]:
    """Through the proxy."""
    memory = RegistryMemory(parse_redis_url(stage.proxy.url))
    yield memory
    await memory.close()


async def put(parts: Parts, client: Client) -> None:
    await parts.registry.put_client(client, old_origins=(), new_origins=(), loss=None)


async def remember(memory: RegistryMemory) -> None:
    for _ in range(2):
        assert await memory.clients.find("app") == APP


async def last_answer(memory: RegistryMemory, answer: Client) -> float:
    """When the last one like this was asked for, before the first other one or error."""
    last = time.monotonic()
    while True:
        asked = time.monotonic()
        try:
            if await memory.clients.find("app") != answer:
                return last
        except StoreUnavailable:
            return last
        last = asked
        await asyncio.sleep(0.005)


async def comes_back(memory: RegistryMemory, client: Client) -> float:
    started = read_fair_clock()
    async with asyncio.timeout(10):
        while True:
            try:
                assert await memory.clients.find("app") == client
            except StoreUnavailable:
                await asyncio.sleep(0.01)
            else:
                return read_fair_clock() - started


@pytest.mark.clause("decided-registry-change-seen", "decided-gateway-stops-trusting")
async def test_a_lost_stream_empties_memory_and_redis_is_asked(stage: Stage, parts: Parts) -> None:
    await remember(parts.memory)
    (ours,) = [client for client in stage.store.client_list() if client["name"] == "token-registry"]
    reads = stage.count_calls("get")

    stage.store.client_kill_filter(_id=ours["id"])
    await until(lambda: ours["id"] not in [client["id"] for client in stage.store.client_list()])
    stage.store.set(registry_key("client", "app"), msgspec.json.encode(CHANGED))
    await heard(parts)
    for _ in range(2):
        assert await parts.clients.find("app") == CHANGED

    assert stage.count_calls("get") == reads + 1


@pytest.mark.clause("decided-registry-change-seen", "decided-gateway-stops-trusting", "decided-i8-fail-closed")
async def test_a_frozen_redis_is_believed_for_a_second_and_then_an_error(stage: Stage, parts: Parts) -> None:
    await remember(parts.memory)
    with stage.frozen():
        frozen = time.monotonic()
        last = await last_answer(parts.memory, APP)

        assert 0 < last - frozen < TRUSTED_SECONDS
        asked = read_fair_clock()
        with pytest.raises(StoreUnavailable):
            await parts.memory.clients.find("app")
        assert read_fair_clock() - asked < LATEST_SECONDS

    assert await comes_back(parts.memory, APP) < LATEST_SECONDS


@pytest.mark.clause("decided-registry-change-seen", "decided-gateway-stops-trusting", "decided-i8-fail-closed")
async def test_what_changes_beyond_a_cut_network_is_old_for_a_second_at_most(
    stage: Stage, parts: Parts, beyond: RegistryMemory
) -> None:
    await remember(beyond)
    with stage.cut_off():
        await put(parts, CHANGED)
        changed = time.monotonic()

        assert await last_answer(beyond, APP) - changed < TRUSTED_SECONDS

    assert await comes_back(beyond, CHANGED) < LATEST_SECONDS


@pytest.mark.clause("decided-registry-change-seen", "decided-redis-away")
async def test_a_server_that_took_the_place_of_another_is_asked(stage: Stage, parts: Parts) -> None:
    """Which changed while nobody could hear of it."""
    await remember(parts.memory)
    with stage.killed():
        pass
    stage.store.set(registry_key("client", "app"), msgspec.json.encode(CHANGED))
    changed = time.monotonic()

    assert await last_answer(parts.memory, APP) - changed < TRUSTED_SECONDS
    assert await comes_back(parts.memory, CHANGED) < BACK_SECONDS


@pytest.mark.clause("decided-i8-fail-closed", "decided-i8-one-deadline", "decided-redis-away")
async def test_a_worker_may_start_before_its_redis_and_is_ready_by_itself(stage: Stage) -> None:
    async with parts_on(stage) as parts:
        with stage.killed():
            asked = time.monotonic()
            with pytest.raises(StoreUnavailable):
                await parts.clients.find("app")
            assert time.monotonic() - asked < DEADLINE_SECONDS
        await put(parts, APP)

        assert await comes_back(parts.memory, APP) < BACK_SECONDS


@pytest.mark.clause("decided-registry-change-seen")
async def test_memory_follows_a_server_on_a_unix_socket(tmp_path: Path) -> None:
    socket = tmp_path / "redis.sock"
    server = start_redis(tmp_path, "--unixsocket", str(socket))
    parts = Parts(load_settings({"REDIS_URL": f"unix://{socket}", "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY}))
    await put(parts, APP)
    await remember(parts.memory)
    await put(parts, CHANGED)
    await heard(parts)

    assert await parts.clients.find("app") == CHANGED
    await parts.close()
    stop(server.process)


@pytest.mark.clause("decided-registry-change-seen", "decided-redis-cluster")
async def test_a_record_whose_slot_moved_is_read_where_it_went_and_followed_there() -> None:
    async with scripted_cluster(2) as cluster:
        first, second = cluster.nodes
        key = registry_key("client", "app")
        cluster.share(second, first)
        before = cluster.find_owner(key.encode())
        (after,) = {first, second} - {before}
        cluster.records[key.encode()] = bulk(msgspec.json.encode(APP))
        memory = RegistryMemory(parse_redis_url(cluster.url))
        await remember(memory)

        cluster.share(first, second)
        cluster.records[key.encode()] = bulk(msgspec.json.encode(CHANGED))
        before.say(INVALIDATE % (len(key), key.encode()))
        await last_answer(memory, APP)
        for _ in range(5):
            assert await memory.clients.find("app") == CHANGED

        assert 1 <= after.count("GET", key) <= 2
        await memory.close()


@pytest.mark.clause("decided-registry-change-seen", "decided-redis-cluster")
async def test_only_a_move_of_the_registrys_slot_empties_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "WATCH_SECONDS", 0.02)
    key = registry_key("client", "app").encode()
    async with scripted_cluster(3) as cluster:
        cluster.records[key] = bulk(msgspec.json.encode(APP))
        memory = RegistryMemory(parse_redis_url(cluster.url))

        def count_reads() -> int:
            return sum(node.count("GET", key.decode()) for node in cluster.nodes)

        async def move(*, with_registry: bool) -> None:
            """Give the slots of one node to another one, and wait until that is known."""
            owner = cluster.find_owner(key)
            old = next(node for _, _, node in cluster.ranges if (node is owner) is with_registry)
            new = next(node for _, _, node in cluster.ranges if node not in (old, owner))
            cluster.ranges = [(first, last, new if node is old else node) for first, last, node in cluster.ranges]
            asked = [node.count("CLUSTER", "SLOTS") for node in cluster.nodes]
            await until(
                lambda: all(
                    node.count("CLUSTER", "SLOTS") > count + 1 for node, count in zip(cluster.nodes, asked, strict=True)
                )
            )

        await remember(memory)
        await move(with_registry=False)
        assert await memory.clients.find("app") == APP
        assert count_reads() == 2
        await move(with_registry=True)
        assert await memory.clients.find("app") == APP
        assert count_reads() == 3
        await memory.close()
