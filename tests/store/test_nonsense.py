"""Answers that no Redis gives: a lookup takes them for an outage, and the node is skipped."""

from __future__ import annotations

import pytest

from service.crypto.keyring import make_access_token
from service.gateway import BearerLookup, StoreUnavailable
from tests.redis_client.scripted_cluster import NONE, array, is_probe, number, render_map, scripted_cluster
from tests.redis_client.scripted_redis import bulk, scripted_redis


@pytest.mark.clause("decided-redis-cluster")
@pytest.mark.parametrize(
    "garbage",
    [
        array(array(bulk(b"x"), NONE, array(bulk(b"127.0.0.1"), number(1), bulk(b"id")))),
        array(array(number(0), number(16383), array(bulk(b"127.0.0.1"), NONE, bulk(b"id")))),
        array(array(number(0), number(16383), array(bulk(b"127.0.0.1"), bulk(b"x"), bulk(b"id")))),
    ],
    ids=["slots that are no numbers", "no port", "a port that is no number"],
)
async def test_slot_map_with_wrong_types_is_ignored(garbage: bytes) -> None:
    async with scripted_cluster(3) as cluster, BearerLookup(cluster.url) as bearer:
        wrong_nodes = cluster.nodes[:2]
        token = cluster.make_token(cluster.nodes[2])
        cluster.say_map = lambda node: garbage if node in wrong_nodes else render_map(cluster.ranges)
        assert await bearer.lookup(token)


@pytest.mark.clause("decided-redis-cluster", "decided-i8-fail-closed")
@pytest.mark.parametrize(
    "redirection",
    [
        b"MOVED x",
        b"MOVED 1 nowhere",
        b"MOVED 99999 127.0.0.1:1",
        b"ASK 1 127.0.0.1:x",
        b"MOVED 1 127.0.0.1:1 more",
    ],
)
async def test_malformed_redirection_is_an_outage(redirection: bytes) -> None:
    async with scripted_cluster(1) as cluster, BearerLookup(cluster.url) as bearer:
        cluster.say_record = lambda _, key: NONE if is_probe(key) else b"-%b\r\n" % redirection
        with pytest.raises(StoreUnavailable):
            await bearer.lookup(make_access_token("0a3").text)


@pytest.mark.clause("decided-i8-fail-closed")
@pytest.mark.parametrize("answer", [number(5), array(number(1)), b"#t\r\n"])
async def test_get_answer_outside_text_is_an_outage(answer: bytes) -> None:
    async with scripted_redis() as scripted, BearerLookup(f"redis://127.0.0.1:{scripted.port}") as bearer:
        scripted.answer = lambda _: answer
        with pytest.raises(StoreUnavailable):
            await bearer.lookup(make_access_token("0a3").text)
