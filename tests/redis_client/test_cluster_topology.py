"""The map of a cluster: which master serves which slot."""

import asyncio

import pytest

from service.crypto.keyring import make_access_token
from service.redis_client.deadline import DEADLINE_SECONDS, StoreUnavailable
from service.redis_client.managed_connection import HEARTBEAT_SECONDS, WATCH_SECONDS
from tests.redis_client.lookups import lookup_at, remember
from tests.redis_client.scripted_cluster import (
    NONE,
    array,
    is_probe,
    key_of,
    moved,
    number,
    render_map,
    scripted_cluster,
)
from tests.redis_client.scripted_redis import ScriptedRedis, bulk
from tests.redis_client.settled_time import SettledTime
from tests.support.waiting import until


@pytest.mark.clause("decided-redis-cluster", "decided-memory-follows-redis")
@pytest.mark.parametrize(("word", "is_remembered"), [(b"MOVED", False), (b"ASK", True)])
async def test_cache_is_cleared_when_a_node_loses_its_probe_slot(
    settled_time: SettledTime, word: bytes, is_remembered: bool
) -> None:
    """A replica that was a master says MOVED. A node whose slot is only on its way (ASK) still tells of changes."""
    async with scripted_cluster(2) as cluster, lookup_at(cluster.url) as bearer:
        first, second = cluster.nodes
        token = cluster.make_token(first)
        await remember(bearer, token)

        def send_probe_away(node: ScriptedRedis, key: bytes) -> bytes:
            return moved(key, second, word) if is_probe(key) else cluster.find_record(node, key)

        cluster.say_record = send_probe_away
        del cluster.records[key_of(token)]
        asked = first.count("GET")
        await settled_time.let_pass_until(lambda: first.count("GET") > asked, HEARTBEAT_SECONDS)

        assert (await bearer.lookup(token) is not None) == is_remembered
        assert first.connected == 1


@pytest.mark.clause("decided-redis-cluster")
async def test_changed_map_probes_each_node_with_its_own_key(settled_time: SettledTime) -> None:
    """Otherwise the cache would be emptied at each heartbeat, or a new node trusted in any state."""
    async with scripted_cluster(3) as cluster, lookup_at(cluster.url) as bearer:
        first, second, third = cluster.nodes
        cluster.share(first, second)
        assert await bearer.lookup(cluster.make_token(first))
        cluster.share(third, second, first)
        assert await bearer.lookup(cluster.make_token(third))
        probed: list[tuple[ScriptedRedis, bytes]] = []

        def note(node: ScriptedRedis, key: bytes) -> bytes:
            answer = cluster.find_record(node, key)
            probed.append((node, answer))
            return answer

        cluster.say_record = note
        await settled_time.let_pass_until(lambda: {node for node, _ in probed} == set(cluster.nodes), HEARTBEAT_SECONDS)

        assert {answer for _, answer in probed} == {NONE}


@pytest.mark.clause("decided-redis-cluster")
async def test_isolated_node_does_not_change_the_slot_map(settled_time: SettledTime) -> None:
    """It goes on telling the map of before, in which it is a master."""
    async with scripted_cluster(3) as cluster, lookup_at(cluster.url) as bearer:
        old, new, other = cluster.nodes
        cluster.share(old, other)
        before = render_map(cluster.ranges)
        assert await bearer.lookup(cluster.make_token(old))
        cluster.share(new, other)
        cluster.lost.add(old)
        cluster.say_map = lambda node: before if node is old else render_map(cluster.ranges)
        token = cluster.make_token(new)
        assert await bearer.lookup(token)

        asked, refused = old.count("CLUSTER", "SLOTS"), old.count("GET")
        await settled_time.let_pass_until(lambda: old.count("CLUSTER", "SLOTS") > asked + 2, 9 * WATCH_SECONDS)

        assert await bearer.lookup(token)
        assert old.count("GET") == refused


@pytest.mark.clause("decided-redis-cluster")
async def test_old_map_is_kept_when_all_nodes_are_isolated(settled_time: SettledTime) -> None:
    async with scripted_cluster(2) as cluster, lookup_at(cluster.url) as bearer:
        cluster.lost.update(cluster.nodes)
        tokens = [cluster.make_token(node) for node in cluster.nodes]
        assert all([await bearer.lookup(token) for token in tokens])

        before = render_map(cluster.ranges)
        cluster.say_map = lambda node: before if node is cluster.nodes[0] else render_map(cluster.ranges[:1])
        asked = cluster.nodes[1].count("CLUSTER", "SLOTS")
        await settled_time.let_pass_until(
            lambda: cluster.nodes[1].count("CLUSTER", "SLOTS") > asked + 2, 6 * WATCH_SECONDS
        )

        assert all([await bearer.lookup(token) for token in tokens])


@pytest.mark.clause("decided-redis-cluster", "decided-memory-follows-redis")
@pytest.mark.parametrize(("is_live", "host"), [(True, b"127.0.0.1"), (False, b"")])
async def test_answer_about_a_moving_key_is_not_cached(is_live: bool, host: bytes) -> None:
    """It need not tell of changes to it. Without a host it is at that of the node that sent us there."""
    async with scripted_cluster(2) as cluster, lookup_at(cluster.url) as bearer:
        first, second = cluster.nodes
        token = cluster.make_token(first, live=is_live)
        assert await bearer.lookup(cluster.make_token(second))
        await until(lambda: first.count("TIME") > 0 and first.connected == second.connected == 1)
        accepted = (first.accepted, second.accepted)

        def migrate(node: ScriptedRedis, key: bytes) -> bytes:
            if key != key_of(token):
                return cluster.find_record(node, key)
            return moved(key, second, b"ASK", host) if node is first else cluster.records.get(key, NONE)

        cluster.say_record = migrate
        for count in range(1, 5):
            assert (await bearer.lookup(token) is not None) == is_live
            assert second.count("GET", key_of(token).decode()) == second.count("ASKING") == count

        assert (first.accepted, second.accepted) == accepted


@pytest.mark.clause("decided-redis-cluster")
@pytest.mark.parametrize("host", [b"", None])
async def test_node_without_an_address_keeps_the_address_asked(host: bytes | None) -> None:
    async with scripted_cluster(1) as cluster, lookup_at(cluster.url) as bearer:
        text = render_map(cluster.ranges, b"")
        cluster.say_map = lambda _: text if host is not None else text.replace(bulk(b""), NONE)

        assert await bearer.lookup(cluster.make_token(cluster.nodes[0]))


GARBAGE: tuple[bytes, ...] = (
    number(5),
    NONE,
    b"+OK\r\n",
    b"-ERR This instance has cluster support disabled\r\n",
    array(number(1)),
    array(array(number(0), number(16383))),
    array(array(number(0), number(16383), array(bulk(b"127.0.0.1")))),
    array(array(number(0), number(16383), array(bulk(b"\xff\xfe"), number(1), bulk(b"id")))),
    b"!?",
    array(array(bulk(b"x"), NONE, array(bulk(b"127.0.0.1"), number(1), bulk(b"id")))),
    array(array(number(0), number(16383), array(bulk(b"127.0.0.1"), NONE, bulk(b"id")))),
    array(array(number(0), number(16383), array(bulk(b"127.0.0.1"), bulk(b"x"), bulk(b"id")))),
)


@pytest.mark.clause("decided-redis-cluster")
@pytest.mark.parametrize("garbage", GARBAGE)
async def test_node_with_a_malformed_map_is_ignored(garbage: bytes) -> None:
    """Another one knows better. So it is where the garbage comes first, and where a node begins to say it."""
    async with scripted_cluster(3) as cluster, lookup_at(cluster.url) as bearer:
        mad = cluster.nodes[:2]
        token = cluster.make_token(cluster.nodes[2])
        cluster.say_map = lambda node: garbage if node in mad else render_map(cluster.ranges)

        assert await bearer.lookup(token)


@pytest.mark.clause("decided-redis-cluster")
async def test_node_without_slots_leaves_the_map_unchanged(settled_time: SettledTime) -> None:
    async with scripted_cluster(2) as cluster, lookup_at(cluster.url) as bearer:
        first, other = cluster.nodes
        token = cluster.make_token(first)
        assert await bearer.lookup(token)
        asked: list[ScriptedRedis] = []

        def say_map(node: ScriptedRedis) -> bytes:
            asked.append(node)
            return array() if node is other else render_map(cluster.ranges)

        cluster.say_map = say_map
        await settled_time.let_pass_until(lambda: asked.count(other) == 2, 4 * WATCH_SECONDS)

        assert await bearer.lookup(cluster.make_token(first))


@pytest.mark.clause("decided-redis-cluster")
async def test_lookup_moves_to_the_new_node_of_the_map(settled_time: SettledTime) -> None:
    async with scripted_cluster(2) as cluster, lookup_at(cluster.url, watch_seconds=0.2) as bearer:
        first, silent = cluster.nodes
        silent.mute()
        token = cluster.make_token(silent)
        end = settled_time.read() + DEADLINE_SECONDS
        waiting = asyncio.create_task(bearer.lookup(token))
        await settled_time.let_pass_until(
            lambda: first.count("CLUSTER", "SLOTS") >= 1 and silent.count("HELLO") >= 2, DEADLINE_SECONDS
        )
        cluster.share(first)

        assert await settled_time.run(waiting, end - settled_time.read()) is not None


@pytest.mark.clause("decided-redis-cluster", "decided-i8-fail-closed")
@pytest.mark.parametrize(
    "redirection",
    [b"MOVED x", b"MOVED 1 nowhere", b"MOVED 99999 127.0.0.1:1", b"ASK 1 127.0.0.1:x", b"MOVED 1 127.0.0.1:1 more"],
)
async def test_malformed_redirection_is_an_outage(redirection: bytes) -> None:
    async with scripted_cluster(1) as cluster, lookup_at(cluster.url) as bearer:
        cluster.say_record = lambda _, key: NONE if is_probe(key) else b"-%b\r\n" % redirection
        with pytest.raises(StoreUnavailable):
            await bearer.lookup(make_access_token("0a3").text)
