"""Watches on a real Redis: what ends them, what does not, and what an idle one costs."""

import asyncio
import secrets
import tracemalloc

import pytest
import redis

from service.crypto.keyring import make_access_token
from service.gateway import BearerLookup
from service.gateway.watch import Reason
from service.redis_client.managed_connection import HEARTBEAT_SECONDS, TRUSTED_SECONDS
from service.worker import Worker
from tests.conftest import AnyRedis, Clock
from tests.faults.deployment import start_sessions
from tests.gateway.conftest import CAROL
from tests.gateway.watching import find_trust, is_settled, settle, watch
from tests.redis_client.lookups import lookup_at
from tests.redis_client.scripted_cluster import key_of, scripted_cluster
from tests.support.clients_and_users import access_key_of
from tests.support.loop_time import LoopTime
from tests.support.servers import RedisServer
from tests.support.waiting import result_of, until

BYTES_EACH = 1024
WATCHES = 10_000
"""So many that what the lookup itself allocates hardly counts."""
pytestmark = pytest.mark.usefixtures("held_time")


def count_commands(store: redis.Redis) -> dict[str, int]:
    """Return the calls of each command, without those of heartbeats, which do not depend on the watches."""
    others = ("cmdstat_hello", "cmdstat_info", "cmdstat_time")
    return {name: each["calls"] for name, each in store.info("commandstats").items() if name not in others}


@pytest.mark.clause("decided-streams-end", "decided-i7-revocation-is-final")
async def test_watches_end_when_their_user_is_logged_out(
    lookup: BearerLookup, worker: Worker, tokens: list[str]
) -> None:
    """Ten streams share each token. Those of another user go on."""
    ((other, _),) = await start_sessions(worker, "dave@example.com", 1)
    going_on = await watch(lookup, other)
    ended = [lookup.watch(token) for token in tokens for _ in range(10)]
    await settle(lookup)

    await worker.revocations.revoke_all(CAROL.shard, CAROL.digest)

    assert {await result_of(each) for each in ended} == {"revoked"}
    assert not going_on.done()


@pytest.mark.clause("decided-streams-end")
async def test_revocation_before_the_watch_is_noticed(
    lookup: BearerLookup, tokens: list[str], store: redis.Redis
) -> None:
    """The token was checked, and found in the cache, before it was revoked."""
    await watch(lookup, tokens[0])
    store.delete(access_key_of(tokens[1]))

    assert await result_of(await watch(lookup, tokens[1], is_checked=False)) == "revoked"


@pytest.mark.clause("decided-streams-end", "decided-i9-one-clock")
async def test_watch_ends_at_the_expiry_of_its_token(
    lookup: BearerLookup, tokens: list[str], clock: Clock, held_time: LoopTime
) -> None:
    """Redis still has the key then, and sends no invalidation."""
    left_seconds = TRUSTED_SECONDS / 2
    grant = await lookup.lookup(tokens[0])
    assert grant is not None
    clock.offset_ms = grant.expires_at_ms - lookup.now_ms() - round(left_seconds * 1000)
    ended = await watch(lookup, tokens[0])

    held_time.advance(left_seconds - 0.01)
    await asyncio.sleep(0)
    assert not ended.done()
    held_time.advance(0.02)
    assert await result_of(ended) == "expired"


@pytest.mark.clause("decided-streams-end")
@pytest.mark.single_server("reads are counted, and on a cluster a beat is a read as well")
async def test_idle_watches_of_a_token_cost_one_read(
    redis_server: AnyRedis, tokens: list[str], store: redis.Redis
) -> None:
    """A lookup without memory shows that no cache keeps the streams alive."""
    async with BearerLookup(redis_server.url, memory=False) as bearer:
        await watch(bearer, tokens[0])
        before = store.info("commandstats")["cmdstat_get"]["calls"]

        ended = [bearer.watch(token) for token in tokens[:2] for _ in range(100)]
        await settle(bearer)
        assert store.info("commandstats")["cmdstat_get"]["calls"] == before + 1

        store.delete(access_key_of(tokens[0]))
        assert {await result_of(each) for each in ended[:100]} == {"revoked"}
        assert not any(each.done() for each in ended[100:])


@pytest.mark.clause("decided-streams-end", "decided-lookup-bounded")
@pytest.mark.single_server("commands are counted")
async def test_idle_watches_cost_little_memory_and_no_traffic(
    redis_server: AnyRedis, store: redis.Redis, held_time: LoopTime
) -> None:
    record = f"2\n0\n{32_503_680_000_000}\nfamily\nphone-app\nsubject\ncarol\nrealm:main role:enduser"
    tokens = [make_access_token("0a3").text for _ in range(WATCHES)]
    store.mset({access_key_of(token): record for token in tokens})
    # The clock of Redis goes on while ours is held.
    async with lookup_at(redis_server.url, drift_seconds=3_600.0) as bearer:
        await watch(bearer, tokens[0])
        tracemalloc.start()
        ended = [bearer.watch(token) for token in tokens]
        await settle(bearer)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert used / len(ended) < BYTES_EACH

        before = count_commands(store)
        for _ in range(round(2 * TRUSTED_SECONDS / HEARTBEAT_SECONDS)):
            held_time.advance(HEARTBEAT_SECONDS)
            await until(lambda: find_trust(bearer).until > held_time.read() + HEARTBEAT_SECONDS, "the heartbeat")

        assert count_commands(store) == before


@pytest.mark.clause("decided-streams-end")
async def test_key_that_is_written_again_ends_no_watch(
    lookup: BearerLookup, tokens: list[str], store: redis.Redis
) -> None:
    """Redis reports each change of the key, so it is asked again after each."""
    ended, key = await watch(lookup, tokens[0]), access_key_of(tokens[0])
    for _ in range(3):
        store.pexpire(key, 600_000)
        await until(lambda: not is_settled(lookup), "the invalidation")
        await settle(lookup)
    assert not ended.done()

    store.flushall()

    assert await result_of(ended) == "revoked"


@pytest.mark.clause("decided-streams-end", "decided-i7-revocation-is-final")
async def test_racing_watches_and_revocations_leave_no_stream(lookup: BearerLookup, worker: Worker) -> None:
    """Each token is watched several times, and each is revoked at some moment before, between or after that."""
    for _ in range(10):
        tokens = [token for token, _ in await start_sessions(worker, CAROL.username, 100)]

        async def follow(token: str) -> Reason | None:
            for _ in range(secrets.randbelow(8)):
                await asyncio.sleep(0)
            return None if await lookup.lookup(token) is None else await lookup.watch(token)

        async def revoke(token: str) -> None:
            for _ in range(secrets.randbelow(16)):
                await asyncio.sleep(0)
            await worker.redis.write("DEL", access_key_of(token))

        work = [act(token) for token in tokens for act in (follow, revoke, follow)]
        assert set(await result_of(asyncio.gather(*work))) <= {"revoked", None}

    assert not lookup._watches._by_key


async def test_watch_may_be_the_first_use_of_a_lookup(
    lookup: BearerLookup, tokens: list[str], store: redis.Redis, held_time: LoopTime
) -> None:
    with held_time.running_at(1):
        ended = await watch(lookup, tokens[0], is_checked=False)

    store.delete(access_key_of(tokens[0]))

    assert await result_of(ended) == "revoked"


@pytest.mark.clause("decided-streams-end")
@pytest.mark.single_server("the user is one of this server")
async def test_server_that_tracks_no_keys_is_asked_again(
    single_server: RedisServer, tokens: list[str], store: redis.Redis, held_time: LoopTime
) -> None:
    store.acl_setuser(
        "plain", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-client|tracking"]
    )
    async with BearerLookup(f"redis://plain:x@127.0.0.1:{single_server.port}/0") as bearer:
        assert await bearer.lookup(tokens[0])
        ended, going_on = bearer.watch(tokens[0]), bearer.watch(tokens[1])
        store.delete(access_key_of(tokens[0]))

        with held_time.running_at(1):
            assert await result_of(ended) == "revoked"
        assert not going_on.done()
    store.acl_deluser("plain")


async def test_cancelled_watches_leave_nothing_behind(lookup: BearerLookup, tokens: list[str]) -> None:
    ended = [await watch(lookup, token) for token in tokens for _ in range(3)]

    for each in ended:
        each.cancel()
    await asyncio.sleep(0)

    assert not lookup._watches._by_key


@pytest.mark.clause("decided-streams-end")
async def test_closing_the_lookup_ends_its_watches(lookup: BearerLookup, tokens: list[str]) -> None:
    ended = await watch(lookup, tokens[0])

    await lookup.close()

    assert await ended == "unavailable"


async def test_watch_refuses_what_is_no_access_token(lookup: BearerLookup) -> None:
    with pytest.raises(ValueError, match="not an access token"):
        lookup.watch("tsrt1_0a3")


@pytest.mark.clause("decided-redis-cluster", "decided-streams-end")
async def test_watch_follows_a_slot_to_its_new_owner(held_time: LoopTime) -> None:
    """The old owner sends no invalidation. One of the tokens is revoked at the new owner, which never tracked it."""
    async with scripted_cluster(3) as cluster, BearerLookup(cluster.url) as bearer:
        first, second, third = cluster.nodes
        gone, kept, other = (cluster.make_token(node) for node in (first, first, second))
        ended, going_on = await watch(bearer, gone), await watch(bearer, kept)

        del cluster.records[key_of(gone)]
        cluster.share(second, third, first)
        assert await bearer.lookup(other)  # follows a redirection, and reads the map anew

        assert await result_of(ended) == "revoked"
        await settle(bearer)
        assert not going_on.done()
