"""Lookups on a real Redis: what comes from memory, what leaves it, and what never gets there."""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from service.crypto.keyring import make_access_token
from service.gateway import BearerLookup, StoreUnavailable
from service.gateway.access_record import access_key
from service.gateway.lookup import UNKNOWN_SECONDS
from service.redis_client.managed_connection import TRUSTED_SECONDS
from service.redis_client.url import parse_redis_url
from service.store.sessions.access_tokens import AccessTokens
from service.worker import Worker
from tests.conftest import AnyRedis, Clock, read_server_ms
from tests.faults.deployment import start_sessions
from tests.gateway.conftest import CAROL
from tests.redis_client.scripted_cluster import key_of, record, scripted_cluster
from tests.redis_client.scripted_redis import scripted_redis
from tests.support.clients_and_users import access_key_of, access_name_of
from tests.support.loop_time import SAME_SECONDS, LoopTime
from tests.support.servers import start_redis, stop
from tests.support.waiting import until

MOMENT_SECONDS = 0.01
# Memory, and with it how often Redis is asked, depends on the time.
pytestmark = pytest.mark.usefixtures("held_time")

COUNTS_READS = pytest.mark.single_server("reads are counted, and on a cluster a beat is a read as well")


@contextmanager
def counting_reads(store: redis.Redis) -> Iterator[list[int]]:
    """Count the GETs that Redis serves in the block. The number is known at its end."""
    counted: list[int] = []
    before = _count_reads(store)
    yield counted
    counted.append(_count_reads(store) - before)


def _count_reads(store: redis.Redis) -> int:
    statistics: dict[str, dict[str, int]] = store.info("commandstats")
    return statistics.get("cmdstat_get", {"calls": 0})["calls"]


async def is_live(bearer: BearerLookup, token: str) -> bool:
    return await bearer.lookup(token) is not None


async def let_pass(bearer: BearerLookup, held_time: LoopTime, seconds: float) -> None:
    """Move the time. Each master, all of which are connected before, has answered a beat of the new moment then."""
    reads = [master.reads for master in bearer._router.topology.list_known()]
    await until(lambda: all(each.is_up for each in reads), "the connections")
    held_time.advance(seconds)
    await until(
        lambda: all(
            each.trust.until == pytest.approx(held_time.read() + TRUSTED_SECONDS, abs=SAME_SECONDS) for each in reads
        ),
        "the beats",
    )


async def remember(bearer: BearerLookup, tokens: list[str]) -> None:
    """Look the tokens up twice, since a token is cached from its second use on."""
    for token in tokens:
        assert await is_live(bearer, token)
        assert await is_live(bearer, token)


async def turns(bearer: BearerLookup, token: str, *, live: bool) -> bool:
    """Return True once the cache gives this answer."""
    asking = asyncio.create_task(_ask_until(bearer, token, live))
    await until(asking.done, f"the token to be {'live' if live else 'dead'}")
    return True


async def _ask_until(bearer: BearerLookup, token: str, live: bool) -> None:
    while await is_live(bearer, token) != live:  # noqa: ASYNC110 - Redis tells the lookup, not us
        await asyncio.sleep(0)


@pytest.mark.clause("decided-verify-asks-redis-once", "spec-4.5-bearer-header")
@COUNTS_READS
async def test_live_token_is_cached_after_two_reads(
    lookup: BearerLookup, tokens: list[str], store: redis.Redis
) -> None:
    with counting_reads(store) as reads:
        first = await lookup.lookup(tokens[0])
        assert [await lookup.lookup(tokens[0]) for _ in range(100)] == [first] * 100

    assert reads == [2]
    assert first is not None
    assert (first.subject, first.username, first.realm) == (CAROL.digest, CAROL.username, "main")
    assert first.scope == "realm:main role:enduser"


@pytest.mark.clause("decided-verify-asks-redis-once", "decided-verify-cache")
@COUNTS_READS
async def test_without_memory_every_lookup_is_one_read(
    redis_server: AnyRedis, tokens: list[str], store: redis.Redis
) -> None:
    async with BearerLookup(redis_server.url, memory=False) as bearer:
        assert await is_live(bearer, tokens[0])

        with counting_reads(store) as reads:
            assert all([await is_live(bearer, tokens[0]) for _ in range(10)])

    assert reads == [10]


@pytest.mark.clause("decided-verify-asks-redis-once")
@COUNTS_READS
async def test_malformed_access_token_is_refused_without_redis(lookup: BearerLookup, store: redis.Redis) -> None:
    await lookup.lookup(make_access_token("0a3").text)

    with counting_reads(store) as reads:
        for garbage in ("", "x" * 60_000, "tsrt1_0a3" + "A" * 44, "tsat1_0a3" + "A" * 43 + "\ud800"):
            assert await lookup.lookup(garbage) is None

    assert reads == [0]


@pytest.mark.clause("decided-unknown-remembered")
@COUNTS_READS
async def test_an_unknown_token_is_asked_for_once(lookup: BearerLookup, store: redis.Redis) -> None:
    garbage = make_access_token("0a3").text

    with counting_reads(store) as reads:
        assert [await lookup.lookup(garbage) for _ in range(100)] == [None] * 100

    assert reads == [1]


@pytest.mark.clause("decided-unknown-remembered", "decided-lookup-bounded")
async def test_unknown_and_single_use_tokens_are_not_tracked(
    lookup: BearerLookup, tokens: list[str], store: redis.Redis
) -> None:
    """Redis notes every tracked key. A flood of garbage would fill its table."""
    assert all([await is_live(lookup, token) for token in tokens])
    await asyncio.gather(*(lookup.lookup(make_access_token(f"{n:03x}").text) for n in range(500)))
    once = store.info("stats")["tracking_total_keys"]

    assert all([await is_live(lookup, token) for token in tokens])
    twice = store.info("stats")["tracking_total_keys"]

    assert (once, twice) == (0, len(tokens))


@pytest.mark.clause("decided-unknown-remembered", "decided-lookup-bounded")
@COUNTS_READS
async def test_unknown_tokens_evict_no_live_token(
    redis_server: AnyRedis, tokens: list[str], store: redis.Redis
) -> None:
    async with BearerLookup(redis_server.url, most_unknown=50) as bearer:
        await remember(bearer, tokens)
        flood = [make_access_token(f"{n:03x}").text for n in range(500)]
        await asyncio.gather(*(bearer.lookup(garbage) for garbage in flood))

        with counting_reads(store) as reads:
            assert all([await is_live(bearer, token) for token in tokens])
            assert not any([await is_live(bearer, garbage) for garbage in flood[-50:]])
        with counting_reads(store) as more_reads:
            assert not await is_live(bearer, flood[0])

    assert (reads, more_reads) == ([0], [1])


@pytest.mark.clause("decided-lookup-bounded")
@COUNTS_READS
async def test_full_cache_evicts_the_least_recently_used_tokens(
    redis_server: AnyRedis, tokens: list[str], store: redis.Redis
) -> None:
    async with BearerLookup(redis_server.url, most_live=3) as bearer:
        one, two, three, four = tokens[:4]
        await remember(bearer, [one, two, three])
        await remember(bearer, [one, four])

        with counting_reads(store) as remembered:
            assert all([await is_live(bearer, token) for token in (one, three, four)])
        with counting_reads(store) as forgotten:
            assert await is_live(bearer, two)

    assert (remembered, forgotten) == ([0], [1])


@pytest.mark.clause(
    "decided-memory-follows-redis", "decided-i7-revocation-is-final", "6819-4.6.1-access-tokens-to-an-api"
)
async def test_a_revoked_token_leaves_memory(lookup: BearerLookup, worker: Worker, tokens: list[str]) -> None:
    await remember(lookup, tokens[:2])

    await AccessTokens(worker.redis).revoke(access_name_of(tokens[0]), client_id="phone-app")

    assert await turns(lookup, tokens[0], live=False)
    assert await is_live(lookup, tokens[1])


@pytest.mark.clause("decided-memory-follows-redis")
async def test_a_flush_empties_memory(lookup: BearerLookup, tokens: list[str], store: redis.Redis) -> None:
    await remember(lookup, tokens)

    store.flushall()

    assert all([await turns(lookup, token, live=False) for token in tokens])


@pytest.mark.clause("decided-memory-follows-redis")
async def test_new_token_is_live_after_the_negative_cache_expires(held_time: LoopTime) -> None:
    """It cannot happen by chance; it can when a backup is put back."""
    token = make_access_token("0a3").text
    async with scripted_redis() as scripted, BearerLookup(f"redis://127.0.0.1:{scripted.port}") as bearer:
        scripted.clock = held_time.read
        assert not await is_live(bearer, token)

        scripted.answer = lambda _: record("0a3")
        await let_pass(bearer, held_time, UNKNOWN_SECONDS / 2)  # the trust must not end with it
        held_time.advance(UNKNOWN_SECONDS / 2 - MOMENT_SECONDS)
        assert not await is_live(bearer, token)
        held_time.advance(2 * MOMENT_SECONDS)

        assert await is_live(bearer, token)


@pytest.mark.clause("decided-i9-one-clock", "decided-memory-follows-redis")
@COUNTS_READS
async def test_cached_token_is_dead_after_its_expiry(
    lookup: BearerLookup, tokens: list[str], store: redis.Redis, clock: Clock, held_time: LoopTime
) -> None:
    """Redis comes upon an expired key when it does; here it never does, and is asked."""
    left_seconds = TRUSTED_SECONDS / 2
    grant = await lookup.lookup(tokens[0])
    assert grant is not None
    clock.offset_ms = grant.expires_at_ms - lookup.now_ms() - round(left_seconds * 1000)
    await remember(lookup, tokens[:1])

    clock.offset_ms += 600_000
    with counting_reads(store) as too_old:
        assert all([await is_live(lookup, tokens[1]) for _ in range(5)])

    held_time.advance(left_seconds - MOMENT_SECONDS)
    with counting_reads(store) as young:
        assert await is_live(lookup, tokens[0])
    held_time.advance(2 * MOMENT_SECONDS)
    with counting_reads(store) as old:
        assert await is_live(lookup, tokens[0])

    assert (too_old, young, old) == ([5], [0], [1])


@pytest.mark.clause("decided-i9-one-clock")
async def test_the_lookup_tells_the_time_of_redis(
    lookup: BearerLookup, store: redis.Redis, clock: Clock, held_time: LoopTime
) -> None:
    """The lookup reads Redis time while it connects, and computes it from then on."""
    before_ms = read_server_ms(store)
    await lookup.lookup(make_access_token("0a3").text)
    told_ms = lookup.now_ms()
    assert before_ms - 1 <= told_ms <= read_server_ms(store)  # a rounded millisecond

    clock.offset_ms = 7_000_000
    held_time.advance(TRUSTED_SECONDS)
    assert abs(lookup.now_ms() - 7_001_000 - told_ms) <= 1


@pytest.mark.clause("decided-i8-fail-closed", "decided-record-version")
async def test_record_of_unknown_version_is_an_error(
    lookup: BearerLookup, tokens: list[str], store: redis.Redis
) -> None:
    record = store.get(access_key_of(tokens[0]))
    store.set(access_key_of(tokens[0]), f"3{str(record)[1:]}", px=60_000)

    with pytest.raises(StoreUnavailable, match="version '3'; this library reads version 2"):
        await lookup.lookup(tokens[0])

    assert await is_live(lookup, tokens[1])


@pytest.mark.clause("decided-memory-follows-redis")
async def test_racing_reads_and_revocations_leave_no_stale_entry(lookup: BearerLookup, worker: Worker) -> None:
    """A stale fill: a read, its invalidation, and only then the old value is put into memory, for good."""
    for _ in range(10):
        tokens = [token for token, _ in await start_sessions(worker, CAROL.username, 100)]

        async def look(token: str) -> None:
            for _ in range(secrets.randbelow(8)):
                await lookup.lookup(token)

        async def revoke(token: str) -> None:
            for _ in range(secrets.randbelow(8)):
                await asyncio.sleep(0)
            await worker.redis.write("DEL", access_key_of(token))

        await asyncio.gather(*(act(token) for token in tokens for act in (look, revoke, look)))
        await lookup.lookup(make_access_token("0a3").text)  # this answer comes after all invalidations in the stream

        assert not any([await is_live(lookup, token) for token in tokens])


async def test_a_closed_lookup_connects_again_when_it_is_asked(
    lookup: BearerLookup, tokens: list[str], store: redis.Redis
) -> None:
    assert await is_live(lookup, tokens[0])
    await lookup.close()
    await until(lambda: not any(client["name"] == "token-lookups" for client in store.client_list()))

    assert await is_live(lookup, tokens[0])


async def test_redis_url_sets_password_database_and_socket(tmp_path: Path) -> None:
    socket = tmp_path / "redis.sock"
    server = start_redis(tmp_path, "--unixsocket", str(socket))
    try:
        token, now_ms = make_access_token("0a3"), 1_795_000_000_000
        record = f"2\n{now_ms}\n{now_ms + 10**9}\nfamily\nphone-app\nsubject\ncarol\nrealm:main role:enduser"
        with redis.Redis(port=server.port, db=3) as client:
            client.set(access_key(token.shard, token.digest), record, px=60_000)
            client.config_set("requirepass", "p@ss word")
        for url in (f"redis://:p%40ss%20word@127.0.0.1:{server.port}/3", f"unix://:p%40ss%20word@{socket}?db=3"):
            assert parse_redis_url(url).db == 3
            async with BearerLookup(url) as bearer:
                assert await is_live(bearer, token.text)
        async with BearerLookup(f"redis://:wrong@127.0.0.1:{server.port}/3") as bearer:
            with pytest.raises(StoreUnavailable, match="WRONGPASS"):
                await bearer.lookup(token.text)
    finally:
        stop(server.process)


@pytest.mark.clause("decided-redis-cluster", "decided-memory-follows-redis")
async def test_old_owner_of_a_slot_cannot_revive_tokens(held_time: LoopTime) -> None:
    """Only the new owner sends invalidations. The late answer of the old one must not be remembered."""
    async with scripted_cluster(3) as cluster, BearerLookup(cluster.url) as bearer:
        first, second, third = cluster.nodes
        token, other = cluster.make_token(first), cluster.make_token(second)
        record = cluster.records[key_of(token)]
        assert await is_live(bearer, token)
        topology, key = bearer._router.topology, access_key_of(token)
        old_owner = topology.find_connected(key, is_read=True)
        is_late = asyncio.Event()
        first.waits_for = lambda command: is_late if command == [b"GET", key_of(token)] else None
        asking = asyncio.create_task(bearer.lookup(token))
        await until(lambda: first.count("GET", key) == 2)
        owns = cluster.say_record
        cluster.say_record = lambda node, key: record if (node, key) == (first, key_of(token)) else owns(node, key)
        cluster.share(second, third, first)
        assert await is_live(bearer, other)  # follows a redirection, and reads the map anew
        await until(lambda: topology.find_connected(key, is_read=True) is not old_owner, "the new map")
        del cluster.records[key_of(token)]

        is_late.set()
        assert await asking is not None
        assert not await is_live(bearer, token)
