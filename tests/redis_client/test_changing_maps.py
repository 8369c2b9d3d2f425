"""A map of the cluster that changes: what is forgotten, what is kept, and which map is believed."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from service.crypto.keyring import make_access_token
from service.gateway import BearerLookup
from service.gateway.access_record import SHARDS, list_subject_starts
from service.protocol.token_form import SHARD
from service.protocol.user import identify_user
from service.redis_client.options import WATCH_SECONDS
from service.redis_client.slots import SLOTS, get_slot
from service.redis_client.topology import OLD_MAP_SECONDS
from tests.redis_client.lookups import lookup_at, remember
from tests.redis_client.scripted_cluster import ScriptedCluster, key_of, record, render_map, scripted_cluster
from tests.redis_client.settled_time import SettledTime
from tests.support.waiting import until

pytestmark = pytest.mark.clause("decided-redis-cluster", "decided-memory-follows-redis")


async def hear_map_of_each(settled_time: SettledTime, cluster: ScriptedCluster) -> None:
    """Let time pass until each node was asked for the map, and its answer was taken."""
    asked = [node.count("CLUSTER", "SLOTS") for node in cluster.nodes]
    await settled_time.let_pass(len(cluster.nodes) * WATCH_SECONDS)
    assert all(node.count("CLUSTER", "SLOTS") > count for node, count in zip(cluster.nodes, asked, strict=True))


def move_slot_of(cluster: ScriptedCluster, token: str, number: int) -> None:
    """Give the slot of the token to this node, as a migration without its keys would."""
    slot = get_slot(key_of(token).decode())
    cluster.ranges = [
        part
        for first, last, node in cluster.ranges
        for part in (
            [(first, slot - 1, node), (slot, slot, cluster.nodes[number]), (slot + 1, last, node)]
            if first <= slot <= last
            else [(first, last, node)]
        )
        if part[0] <= part[1]
    ]


def make_tokens(cluster: ScriptedCluster, count: int) -> list[str]:
    """Make live tokens of the first node, each of another shard."""
    tokens = (make_access_token(f"{number:03x}").text for number in range(SHARDS))
    own = (token for token in tokens if cluster.find_owner(key_of(token)) is cluster.nodes[0])
    made = list(itertools.islice(own, count))
    cluster.records |= {key_of(token): record(token[SHARD]) for token in made}
    return made


def count_gets(cluster: ScriptedCluster, token: str) -> int:
    return sum(node.count("GET", key_of(token).decode()) for node in cluster.nodes)


async def test_a_slot_that_moves_takes_only_its_own_tokens_from_memory(settled_time: SettledTime) -> None:
    async with scripted_cluster(2) as cluster, lookup_at(cluster.url) as bearer:
        tokens = make_tokens(cluster, 12)
        kept = cluster.make_token(cluster.nodes[1])
        await remember(bearer, kept, *tokens)

        for number, token in enumerate(tokens, 1):
            move_slot_of(cluster, token, 1)
            await settled_time.let_pass(WATCH_SECONDS)
            assert [count_gets(cluster, each) for each in (kept, *tokens[number:])] == [2] * (13 - number)
            assert await all_live(bearer, kept, *tokens)
            assert count_gets(cluster, token) == 3
        assert {count_gets(cluster, kept)} == {2}


async def all_live(bearer: BearerLookup, *tokens: str) -> bool:
    return all([await bearer.lookup(token) for token in tokens])


async def test_a_command_under_way_is_answered_by_the_node_that_leaves(settled_time: SettledTime) -> None:
    """A script that was cut off would be 503, though nothing happened to it."""
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
        await until(lambda: second.connected == 0)


async def test_the_map_of_a_node_that_has_not_heard_of_a_change_is_not_believed(settled_time: SettledTime) -> None:
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


async def test_a_cluster_that_was_made_anew_is_believed_after_a_while(settled_time: SettledTime) -> None:
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


def test_the_subjects_of_a_slot_begin_with_its_shards() -> None:
    starts = {slot: list_subject_starts({slot}) for slot in {get_slot(f"{{{shard:03x}}}") for shard in range(64)}}
    for number in range(3_000):
        user = identify_user("main", f"user {number}")
        for slot, known in starts.items():
            assert (user.subject[:2] in known) == (get_slot(f"{{{user.shard}}}") == slot)
    assert len(list_subject_starts(range(SLOTS))) == SHARDS
