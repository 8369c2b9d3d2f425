"""Connections that wait for a replica do not delay requests to another master."""

import asyncio
from dataclasses import replace

import pytest

from service.redis_client.durable_writes import MAX_LEASED, ConfirmationPool
from service.redis_client.managed_connection import ConnectionOptions
from service.redis_client.router import Router
from service.redis_client.url import Durability, parse_redis_url
from tests.redis_client.host_names import resolve
from tests.redis_client.scripted_cluster import key_of, scripted_cluster
from tests.redis_client.scripted_redis import scripted_redis
from tests.support.waiting import until


@pytest.mark.clause("decided-durability", "decided-redis-cluster")
async def test_exhausted_master_delays_no_other_master() -> None:
    async with scripted_cluster(2) as cluster:
        url = parse_redis_url(cluster.url)
        router = Router(ConnectionOptions(url, "requests"))
        pool = ConfirmationPool(url, Durability("replica"))
        stuck, fine = [await router.topology.find(key_of(cluster.make_token(node)).decode()) for node in cluster.nodes]
        lease = await asyncio.gather(*(pool.acquire(stuck) for _ in range(MAX_LEASED)))
        waiting = [asyncio.ensure_future(pool.acquire(stuck)) for _ in range(MAX_LEASED)]
        lending = asyncio.gather(*(pool.acquire(fine) for _ in range(MAX_LEASED)))
        await until(lending.done)
        others = lending.result()

        assert not any(each.done() for each in waiting)
        for each in lease:
            pool.release(each)
        for each in (*others, *await asyncio.gather(*waiting)):
            pool.release(each)
        pool.close()
        await router.close()
        await until(lambda: not any(node.connected for node in cluster.nodes))


@pytest.mark.clause("decided-durability")
async def test_confirmation_uses_the_address_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_redis() as scripted:
        url = replace(scripted.url, nodes=(("redis.example", scripted.port),))
        resolve(monkeypatch, "redis.example", "127.0.0.1")
        router = Router(ConnectionOptions(url, "requests"))
        master = await router.topology.find("key")
        await master.reads.get_connection()
        resolve(monkeypatch, "redis.example", "127.0.0.2")
        pool = ConfirmationPool(url, Durability("replica"))

        lease = await pool.acquire(master)

        assert lease.connection.get_address() == "127.0.0.1"
        pool.release(lease)
        pool.close()
        await router.close()
