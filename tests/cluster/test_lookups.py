"""Lookups from memory where the masters are many, move, or are replaced."""

from pathlib import Path

import pytest
import redis

from service.crypto.keyring import make_access_token
from service.gateway import BearerLookup, StoreUnavailable
from service.redis_client.managed_connection import HEARTBEAT_SECONDS
from service.store.sessions.access_tokens import AccessTokens
from service.worker import Worker
from tests.cluster.nodes import MASTER_NAME, Cluster, running_cluster, running_sentinel
from tests.cluster.workers import worker_at
from tests.faults.deployment import start_sessions
from tests.gateway.watching import settle, watch
from tests.redis_client.lookups import lookup_at
from tests.support.clients_and_users import access_key_of, access_name_of
from tests.support.loop_time import LoopTime
from tests.support.waiting import result_of, until, until_true, wait_until

USERS = 12


async def start_many(worker: Worker) -> list[str]:
    """Access tokens of users all over the shards."""
    sessions = [await start_sessions(worker, f"user {n}", 2) for n in range(USERS)]
    return [access_token for of_user in sessions for access_token, _ in of_user]


async def revoke(worker: Worker, token: str) -> None:
    assert await AccessTokens(worker.redis).revoke(access_name_of(token), client_id="phone-app") is not None


async def is_answered(bearer: BearerLookup, token: str) -> bool:
    try:
        return await bearer.lookup(token) is not None
    except StoreUnavailable:
        return False


async def until_refused(bearer: BearerLookup, token: str) -> None:
    """Ask until the token is unknown. Errors are ignored until then."""

    async def is_refused() -> bool:
        try:
            return await bearer.lookup(token) is None
        except StoreUnavailable:
            return False

    await until_true(is_refused, "the token to be refused")


async def until_live(bearer: BearerLookup, token: str) -> None:
    await until_true(lambda: is_answered(bearer, token), "the token to be live")


@pytest.mark.clause("decided-redis-cluster", "decided-memory-follows-redis")
async def test_memory_follows_every_node_of_a_cluster(
    cluster: Cluster, cluster_worker: Worker, held_time: LoopTime
) -> None:
    """The time stands still, so that tokens leave memory by invalidations only."""
    tokens = await start_many(cluster_worker)
    assert {cluster.node_of(access_key_of(token)) for token in tokens} == {0, 1, 2}
    async with lookup_at(cluster.url) as bearer:
        assert all([await bearer.lookup(token) for token in tokens * 2])
        assert not await bearer.lookup(make_access_token("0a3").text)

        ended = [await watch(bearer, token) for token in tokens]

        for token in tokens[::2]:
            await revoke(cluster_worker, token)

        for gone, kept in zip(tokens[::2], tokens[1::2], strict=True):
            await until_refused(bearer, gone)
            assert await bearer.lookup(kept)
        assert {await result_of(each) for each in ended[::2]} == {"revoked"}
        assert not any(each.done() for each in ended[1::2])


@pytest.mark.clause("decided-redis-cluster", "decided-gateway-stops-trusting", "decided-i8-fail-closed")
async def test_node_without_the_majority_is_not_trusted(tmp_path: Path, held_time: LoopTime) -> None:
    """It lives, it is a master, and it tells the time; elsewhere its successor may have revoked what it still has."""
    # There is no pause before the next connection, and the clock of Redis goes on while ours is held.
    limits = {"stable_seconds": 0.0, "drift_seconds": 3_600.0}
    with running_cluster(tmp_path) as cluster:
        async with worker_at(cluster.url) as worker, lookup_at(cluster.url, **limits) as bearer:
            tokens = [token for token in await start_many(worker) if cluster.node_of(access_key_of(token)) == 0]
            assert all([await bearer.lookup(token) for token in tokens * 2])

            for node in cluster.nodes[1:]:
                node.kill()
            with cluster.nodes[0].connect() as left:
                await until(lambda: left.cluster("INFO")["cluster_state"] == "fail", "the node to notice")
            assert await bearer.lookup(tokens[0])
            # The next heartbeat hears of it, and its answer takes no time of ours.
            await held_time.advance_in_steps(HEARTBEAT_SECONDS)
            await until_true(lambda: is_unavailable(bearer, tokens[0]), "memory to be distrusted")

            for token in tokens:
                with pytest.raises(StoreUnavailable, match="CLUSTERDOWN"):
                    await bearer.lookup(token)


async def is_unavailable(bearer: BearerLookup, token: str) -> bool:
    return not await is_answered(bearer, token)


async def assert_told(loop_time: LoopTime, bearer: BearerLookup, token: str, master: redis.Redis) -> None:
    """A token that is deleted at this master leaves memory by an invalidation: the time stands still."""
    assert await bearer.lookup(token)
    with loop_time.held():
        master.delete(access_key_of(token))
        await until_refused(bearer, token)


@pytest.mark.clause("decided-redis-sentinel", "decided-memory-follows-redis", "decided-i8-fail-closed")
@pytest.mark.parametrize("is_killed", [True, False])
async def test_memory_follows_the_master_that_the_sentinels_name(
    tmp_path: Path, loop_time: LoopTime, is_killed: bool
) -> None:
    """The old one dies, or lives on as a replica: it would still answer us then."""
    with running_sentinel(tmp_path) as watched, redis.Redis(port=watched.sentinel_port) as sentinel:
        async with worker_at(watched.url) as worker, lookup_at(watched.url) as bearer:
            tokens = [token for token, _ in await start_sessions(worker, "user", 3)]
            assert all([await bearer.lookup(token) for token in tokens * 2])
            ended = [await watch(bearer, token) for token in tokens]
            with watched.master.connect() as master, watched.replica.connect() as replica:
                wait_until(lambda: replica.dbsize() == master.dbsize(), "the replica to have everything")
                if is_killed:
                    watched.kill_master()
                else:
                    sentinel.sentinel_failover(MASTER_NAME)
                await until(lambda: replica.info("replication")["role"] == "master")
                replica.delete(access_key_of(tokens[0]))

                with loop_time.running_at(1):
                    await until_refused(bearer, tokens[0])
                    await until_live(bearer, tokens[1])
                    assert await result_of(ended[0]) == "revoked"
                    await settle(bearer)
                await assert_told(loop_time, bearer, tokens[1], replica)
                assert await result_of(ended[1]) == "revoked"
                assert await bearer.lookup(tokens[2])
                assert not ended[2].done()
