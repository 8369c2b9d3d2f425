"""Connections that wait for a replica hold up nobody at another master."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from service.redis_client.durable_writes import MOST_LENT, Confirmations
from service.redis_client.purpose import Purpose
from service.redis_client.topology import ClusterMap, SingleServer
from service.redis_client.url import parse_redis_url
from tests.redis_client.scripted_cluster import key_of, scripted_cluster
from tests.redis_client.scripted_redis import scripted_redis
from tests.redis_client.test_handshake import resolve
from tests.support.waiting import until


@pytest.mark.clause("decided-durability", "decided-redis-cluster")
async def test_a_master_whose_connections_are_all_lent_holds_up_no_other() -> None:
    async with scripted_cluster(2) as cluster:
        url = parse_redis_url(cluster.url)
        topology = ClusterMap(Purpose(url, "requests"))
        confirmations = Confirmations(url, topology, "replica")
        stuck, fine = [await topology.find(key_of(cluster.make_token(node)).decode()) for node in cluster.nodes]
        lent = await asyncio.gather(*(confirmations.lend(stuck) for _ in range(MOST_LENT)))
        waiting = [asyncio.ensure_future(confirmations.lend(stuck)) for _ in range(MOST_LENT)]
        lending = asyncio.gather(*(confirmations.lend(fine) for _ in range(MOST_LENT)))
        await until(lending.done)
        others = lending.result()

        assert not any(each.done() for each in waiting)
        for each in lent:
            confirmations.take_back(each, is_clean=True)
        for each in (*others, *await asyncio.gather(*waiting)):
            confirmations.take_back(each, is_clean=False)
        confirmations.close()
        await topology.close()
        await until(lambda: not any(node.connected for node in cluster.nodes))


@pytest.mark.clause("decided-durability")
async def test_a_confirmation_is_asked_of_the_address_that_the_link_has(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_redis() as scripted:
        url = replace(scripted.url, nodes=(("redis.example", scripted.port),))
        resolve(monkeypatch, "redis.example", "127.0.0.1")
        topology = SingleServer(Purpose(url, "requests"))
        link = await topology.find("key")
        await link.find_wire()
        resolve(monkeypatch, "redis.example", "127.0.0.2")
        confirmations = Confirmations(url, topology, "replica")

        lent = await confirmations.lend(link)

        assert lent.wire.get_address() == "127.0.0.1"
        confirmations.take_back(lent, is_clean=True)
        confirmations.close()
        await topology.close()
