"""Lookups while Redis is killed, frozen, cut off or refuses us: memory is never believed longer than the bound says."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from service.crypto.keyring import make_access_token
from service.gateway import AccessGrant, BearerLookup, StoreUnavailable
from service.gateway.watch import SILENCE_SECONDS
from service.redis_client.deadline import DEADLINE_SECONDS, charge, start_budget
from service.redis_client.managed_connection import (
    HEARTBEAT_SECONDS,
    MAX_SILENCE_SECONDS,
    STABLE_SECONDS,
    TRUSTED_SECONDS,
)
from service.worker import Worker
from tests.faults.deployment import Deployment, proxied_redis, worker_on
from tests.gateway.conftest import CAROL
from tests.gateway.watching import find_trust, is_settled, settle, watch
from tests.redis_client.lookups import remember
from tests.redis_client.scripted_cluster import record
from tests.redis_client.scripted_redis import scripted_redis
from tests.support.clients_and_users import access_key_of
from tests.support.loop_time import SAME_SECONDS, LoopTime
from tests.support.waiting import result_of, until

MOMENT_SECONDS = 0.01

pytestmark = pytest.mark.usefixtures("held_time")


@pytest.fixture(scope="module")
def shared_deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with proxied_redis(tmp_path_factory.mktemp("lookups")) as deployment:
        yield deployment


@pytest.fixture
def deployment(shared_deployment: Deployment) -> Deployment:
    shared_deployment.proxy.heal()
    shared_deployment.store.flushall()
    return shared_deployment


@pytest.fixture
async def worker(deployment: Deployment) -> AsyncIterator[Worker]:
    async with worker_on(deployment) as worker:
        yield worker


@pytest.fixture
async def direct_lookup(deployment: Deployment) -> AsyncIterator[BearerLookup]:
    async with BearerLookup(deployment.redis.url) as bearer:
        yield bearer


@pytest.fixture
async def proxied_lookup(deployment: Deployment) -> AsyncIterator[BearerLookup]:
    """A lookup through the proxy, which can cut its network."""
    async with BearerLookup(deployment.proxy.url) as bearer:
        yield bearer


async def let_connection_last(bearer: BearerLookup, held_time: LoopTime) -> None:
    """Make the connection old enough to be made again at once. Redis has answered a beat of this moment then."""
    held_time.advance(STABLE_SECONDS)
    await until(lambda: find_trust(bearer).until == pytest.approx(held_time.read() + TRUSTED_SECONDS, abs=SAME_SECONDS))


async def let_trust_end(bearer: BearerLookup, token: str, held_time: LoopTime) -> None:
    """Move the time to the end of the trust. Until then memory answers, and no later beat is vouched for."""
    until_seconds, now_seconds = find_trust(bearer).until, held_time.read()
    assert now_seconds < until_seconds <= now_seconds + TRUSTED_SECONDS  # the sum is rounded as the service rounds it
    held_time.advance(until_seconds - now_seconds - MOMENT_SECONDS)
    assert await bearer.lookup(token)
    held_time.advance(2 * MOMENT_SECONDS)


def start_lookups(bearer: BearerLookup, tokens: list[str]) -> list[asyncio.Task[AccessGrant | None]]:
    return [asyncio.create_task(bearer.lookup(token)) for token in tokens]


async def fail(under_way: list[asyncio.Task[AccessGrant | None]]) -> None:
    """Wait until all are errors. The test moves the time before, to when that has to be so."""
    await until(lambda: all(task.done() for task in under_way), "the lookups to end")
    assert {type(task.exception()) for task in under_way} == {StoreUnavailable}


async def comes_back(bearer: BearerLookup, token: str, held_time: LoopTime, *, live: bool = True) -> None:
    """Ask until Redis answers. Until then there are errors only. Time passes, since the connection may pause."""

    async def ask() -> AccessGrant | None:
        while True:
            try:
                return await bearer.lookup(token)
            except StoreUnavailable:
                await asyncio.sleep(0)

    with held_time.running_at(1):
        asking = asyncio.create_task(ask())
        await until(asking.done, "the lookup to come back")
    assert (asking.result() is not None) == live


@pytest.mark.clause("decided-gateway-stops-trusting", "decided-memory-follows-redis")
async def test_a_lost_stream_empties_memory_and_lookups_go_on(
    deployment: Deployment, direct_lookup: BearerLookup, tokens: list[str], held_time: LoopTime
) -> None:
    await remember(direct_lookup, *tokens)
    await let_connection_last(direct_lookup, held_time)
    await remember(
        direct_lookup, *tokens
    )  # again, since after a stall of the machine Redis's clock seems to have leapt
    reads, trust = deployment.count_calls("get"), find_trust(direct_lookup)
    await remember(direct_lookup, *tokens)
    assert deployment.count_calls("get") == reads
    (ours,) = [client for client in deployment.store.client_list() if client["name"] == "token-lookups"]

    deployment.store.client_kill_filter(_id=ours["id"])
    await until(lambda: trust.until == 0, "the loss to be heard")
    await remember(direct_lookup, *tokens)

    assert deployment.count_calls("get") == reads + len(tokens)


@pytest.mark.clause("decided-i8-fail-closed", "decided-redis-away")
async def test_lookups_fail_without_redis_and_recover(
    deployment: Deployment, direct_lookup: BearerLookup, tokens: list[str], held_time: LoopTime
) -> None:
    """No time passes until the errors come."""
    await remember(direct_lookup, *tokens)
    await let_connection_last(direct_lookup, held_time)
    trust = find_trust(direct_lookup)
    with deployment.killed():
        await until(lambda: trust.until == 0, "the loss to be heard")
        for _ in range(100):
            (asking,) = start_lookups(direct_lookup, tokens[:1])
            await until(asking.done)
            with pytest.raises(StoreUnavailable, match="ConnectionRefusedError"):
                await asking

    await comes_back(direct_lookup, tokens[0], held_time)
    await remember(direct_lookup, *tokens)


@pytest.mark.clause("decided-gateway-stops-trusting")
async def test_answered_heartbeat_is_valid_for_a_second(held_time: LoopTime) -> None:
    """Memory answers as long as beats are answered. It does not after the second that the last one vouches for."""
    token = make_access_token("0a3").text
    async with scripted_redis() as scripted, BearerLookup(f"redis://127.0.0.1:{scripted.port}") as bearer:
        scripted.clock = (
            held_time.read
        )  # on a slow machine this clock would seem to leap, and everything would be read again
        scripted.answer = lambda _: record("0a3")
        await remember(bearer, token)
        await held_time.advance_in_steps(10 * TRUSTED_SECONDS)
        assert scripted.count("HELLO") == 2 + 10 * TRUSTED_SECONDS / HEARTBEAT_SECONDS  # two are of the handshake
        assert find_trust(bearer).until == pytest.approx(held_time.read() + TRUSTED_SECONDS, abs=SAME_SECONDS)

        scripted.delay = lambda _: 10 * DEADLINE_SECONDS
        await let_trust_end(bearer, token, held_time)
        assert scripted.count("GET") == 2
        asking = start_lookups(bearer, [token])
        await held_time.advance_in_steps(DEADLINE_SECONDS)
        await fail(asking)


@pytest.mark.clause("decided-i8-fail-closed", "decided-redis-away")
async def test_late_request_does_not_wait_for_a_frozen_redis(
    deployment: Deployment, direct_lookup: BearerLookup, tokens: list[str], held_time: LoopTime
) -> None:
    left_seconds = 0.3

    async def request() -> AccessGrant | None:
        start_budget()
        charge(held_time.read() - DEADLINE_SECONDS + left_seconds)
        return await direct_lookup.lookup(make_access_token("0a3").text)

    await remember(direct_lookup, *tokens)
    with deployment.frozen():
        asking = asyncio.create_task(request())
        await held_time.advance_in_steps(left_seconds - MOMENT_SECONDS)
        assert not asking.done()
        await held_time.advance_in_steps(MOMENT_SECONDS)
        await fail([asking])


@pytest.mark.clause("decided-gateway-stops-trusting", "decided-i8-fail-closed")
async def test_cut_network_delays_a_revocation_by_a_second_at_most(
    deployment: Deployment, proxied_lookup: BearerLookup, worker: Worker, tokens: list[str], held_time: LoopTime
) -> None:
    await remember(proxied_lookup, *tokens)
    with deployment.cut_off():
        await worker.revocations.revoke_all(CAROL.shard, CAROL.digest)
        await let_trust_end(proxied_lookup, tokens[0], held_time)
        asking = start_lookups(proxied_lookup, tokens)
        await held_time.advance_in_steps(DEADLINE_SECONDS)
        await fail(asking)

    await comes_back(proxied_lookup, tokens[0], held_time, live=False)


@pytest.mark.clause("decided-gateway-stops-trusting")
async def test_after_the_event_loop_stood_still_redis_is_asked(
    deployment: Deployment, direct_lookup: BearerLookup, tokens: list[str], held_time: LoopTime
) -> None:
    """News and lost beats lie unread in the socket; what counts is the clock."""
    await remember(direct_lookup, *tokens)
    for token in tokens:
        deployment.store.delete(access_key_of(token))
    held_time.advance(TRUSTED_SECONDS)

    assert [await direct_lookup.lookup(token) for token in tokens] == [None] * len(tokens)


OUTAGES = pytest.mark.parametrize("outage", [Deployment.killed, Deployment.frozen, Deployment.cut_off])


@OUTAGES
@pytest.mark.clause("decided-streams-end", "decided-i8-fail-closed")
async def test_watches_end_in_time_while_redis_is_silent(
    deployment: Deployment,
    proxied_lookup: BearerLookup,
    tokens: list[str],
    held_time: LoopTime,
    outage: Callable[[Deployment], AbstractContextManager[None]],
) -> None:
    """The time counts from the last heartbeat that was answered."""
    ended = [await watch(proxied_lookup, token) for token in tokens]
    await let_connection_last(proxied_lookup, held_time)
    await settle(proxied_lookup)
    live_at = find_trust(proxied_lookup).until - TRUSTED_SECONDS
    with outage(deployment):
        await held_time.advance_in_steps(live_at + SILENCE_SECONDS - MOMENT_SECONDS - held_time.read())
        assert not any(each.done() for each in ended)
        await held_time.advance_in_steps(2 * MOMENT_SECONDS)
        assert {await result_of(each) for each in ended} == {"unavailable"}


@OUTAGES
@pytest.mark.clause("decided-streams-end")
async def test_watches_go_on_after_an_outage_unless_revoked(
    deployment: Deployment,
    proxied_lookup: BearerLookup,
    tokens: list[str],
    held_time: LoopTime,
    outage: Callable[[Deployment], AbstractContextManager[None]],
) -> None:
    revoked, *live = [await watch(proxied_lookup, token) for token in tokens]
    await let_connection_last(proxied_lookup, held_time)
    with outage(deployment):
        await held_time.advance_in_steps(MAX_SILENCE_SECONDS)
        await until(lambda: not is_settled(proxied_lookup), "the loss to be noticed")
    deployment.store.delete(access_key_of(tokens[0]))

    with held_time.running_at(1):
        assert await result_of(revoked) == "revoked"
        await settle(proxied_lookup)
    assert not any(each.done() for each in live)
