"""A map of the cluster that changes: what is forgotten, what is kept, and which map is believed."""

import asyncio

import pytest

from service.redis_client.cluster import OLD_MAP_SECONDS
from service.redis_client.deadline import DEADLINE_SECONDS
from service.redis_client.managed_connection import WATCH_SECONDS
from tests.redis_client.lookups import lookup_at, remember
from tests.redis_client.scripted_cluster import ScriptedCluster, key_of, render_map, scripted_cluster
from tests.redis_client.settled_time import SettledTime
from tests.support.waiting import until

pytestmark = pytest.mark.clause("decided-redis-cluster", "decided-memory-follows-redis")


async def hear_map_of_each(settled_time: SettledTime, cluster: ScriptedCluster) -> None:
    """Let time pass until each node was asked for the map, and its answer was taken."""
    asked = [node.count("CLUSTER", "SLOTS") for node in cluster.nodes]
    await settled_time.let_pass(len(cluster.nodes) * WATCH_SECONDS)
    assert all(node.count("CLUSTER", "SLOTS") > count for node, count in zip(cluster.nodes, asked, strict=True))


async def test_the_caches_are_emptied_when_a_slot_moves(settled_time: SettledTime) -> None:
    """The new owner of a slot does not track the keys that were read at the old one."""
    async with scripted_cluster(2) as cluster, lookup_at(cluster.url) as bearer:
        first, second = cluster.nodes
        token = cluster.make_token(first)
        await remember(bearer, token)
        cluster.share(second, first)
        del cluster.records[key_of(token)]
        await settled_time.let_pass(WATCH_SECONDS)

        assert await bearer.lookup(token) is None


async def test_departing_node_answers_pending_commands(settled_time: SettledTime) -> None:
    """A script that was cut off would return 503, though nothing happened to it."""
    async with scripted_cluster(2) as cluster, lookup_at(cluster.url) as bearer:
        first, second = cluster.nodes
        late = cluster.make_token(second)
        assert await bearer.lookup(cluster.make_token(second))
        is_late = asyncio.Event()
        second.waits_for = lambda command: is_late if command == [b"GET", key_of(late)] else None
        asking = asyncio.ensure_future(bearer.lookup(late))
        await until(lambda: second.count("GET", key_of(late).decode()) == 1)
        owns = cluster.say_record
        cluster.say_record = lambda node, key: cluster.records[key] if key == key_of(late) else owns(node, key)
        cluster.share(first)
        await settled_time.let_pass(WATCH_SECONDS)
        is_late.set()

        assert await asking is not None
        assert (first.count("GET", key_of(late).decode()), second.count("GET", key_of(late).decode())) == (0, 1)
        await settled_time.let_pass(DEADLINE_SECONDS)
        await until(lambda: second.connected == 0)


async def test_outdated_slot_map_is_ignored(settled_time: SettledTime) -> None:
    async with scripted_cluster(3) as cluster, lookup_at(cluster.url) as bearer:
        first, second, third = cluster.nodes
        cluster.share(first, third)
        before = render_map(cluster.ranges)
        cluster.epochs = dict.fromkeys(cluster.nodes, 7)
        assert await bearer.lookup(cluster.make_token(first))
        cluster.share(second, third)
        cluster.epochs = {first: 7, second: 8, third: 8}
        token = cluster.make_token(second)
        assert await bearer.lookup(token)

        cluster.say_map = lambda node: before if node is first else render_map(cluster.ranges)
        refused = first.count("GET")
        await hear_map_of_each(settled_time, cluster)
        await remember(bearer, token)

        assert first.count("GET") == refused


async def test_recreated_cluster_is_accepted_after_a_while(settled_time: SettledTime) -> None:
    """The new cluster counts its epochs from the start."""
    async with scripted_cluster(2) as cluster, lookup_at(cluster.url) as bearer:
        first, second = cluster.nodes
        cluster.share(first)
        cluster.epochs = dict.fromkeys(cluster.nodes, 7)
        assert await bearer.lookup(cluster.make_token(first))
        cluster.epochs = dict.fromkeys(cluster.nodes, 1)
        cluster.share(second)
        await settled_time.let_pass(OLD_MAP_SECONDS - WATCH_SECONDS / 2)
        assert second.count("GET") == 0

        await settled_time.let_pass(WATCH_SECONDS + WATCH_SECONDS / 2)
        assert second.count("GET") > 0
        assert await bearer.lookup(cluster.make_token(second))
