"""A master dies or freezes: the answers during the failover, and what becomes of lost writes."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from service.gateway import BearerLookup
from service.protocol.user import identify_user
from tests.cluster.failovers import advance_until_done, order_switch
from tests.cluster.nodes import Cluster, Shard, Watched, running_cluster, running_sentinel
from tests.cluster.workers import service_at, shard_of
from tests.conftest import make_code
from tests.gateway.watching import watch
from tests.support.clients_and_users import (
    ALICE,
    PHONE_APP,
    PHONE_CALLBACK,
    assert_error,
    revoke_user,
    tokens_of,
    verify,
)
from tests.support.loop_time import LoopTime
from tests.support.waiting import MAX_WAIT_SECONDS, result_of, until_status


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), replicas=1) as cluster:
        yield cluster


async def put_back(cluster: Cluster, shard: Shard) -> None:
    """The old master follows the new one, as an operator would have it, and confirms what it gets.

    A replica that was sent everything anew does so only a second later.
    """
    (old,) = shard.replicas
    if old.process.poll() is None:
        old.process.send_signal(signal.SIGCONT)
    else:
        shard.restart(old)  # in this thread, because a server ends with the thread that started it
    await asyncio.to_thread(cluster.wait_until_whole)
    with shard.master.connect() as master:
        master.set(f"node:{{{identify_user(ALICE.realm, ALICE.username).shard}}}", "is whole", px=1)
        assert await asyncio.to_thread(master.wait, 1, round(MAX_WAIT_SECONDS * 1000)) == 1


@pytest.mark.clause("decided-redis-cluster", "decided-redis-away", "decided-i8-fail-closed", "decided-durability")
@pytest.mark.clause("decided-streams-end")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
async def test_cluster_failover_keeps_confirmed_writes(
    cluster: Cluster, loop_time: LoopTime, number: signal.Signals
) -> None:
    """A frozen master keeps its connections open and is silent. Only the map tells that it was replaced."""
    shard = shard_of(cluster, ALICE.username)
    async with (
        service_at(cluster.url, "replica") as (worker, http),
        BearerLookup(cluster.url, silence_seconds=MAX_WAIT_SECONDS) as bearer,
    ):
        kept, revoked = [
            tokens_of(await PHONE_APP.exchange(http, await make_code(worker), PHONE_CALLBACK)) for _ in range(2)
        ]
        assert (await PHONE_APP.revoke(http, revoked["refresh_token"])).status_code == 200
        ended = await watch(bearer, kept["access_token"])

        shard.master.process.send_signal(number)
        answer = await advance_until_done(loop_time, shard, lambda: PHONE_APP.refresh(http, kept["refresh_token"]))

        assert (await verify(http, tokens_of(answer)["access_token"])).status_code == 200
        assert (await verify(http, revoked["access_token"])).status_code == 401
        assert_error(await PHONE_APP.refresh(http, revoked["refresh_token"]), 400, "invalid_grant")
        assert_error(
            await PHONE_APP.exchange(http, await make_code(worker), PHONE_CALLBACK), 503, "temporarily_unavailable"
        )
        await put_back(cluster, shard)
        assert tokens_of(await PHONE_APP.exchange(http, await make_code(worker), PHONE_CALLBACK))
        assert (await verify(http, revoked["access_token"])).status_code == 401
        assert not ended.done()
        assert (await PHONE_APP.revoke(http, kept["access_token"])).status_code == 200
        with loop_time.running_at(1):
            assert await result_of(ended) == "revoked"


@pytest.mark.clause("6819-5.2.2.3-rotation-in-a-cluster", "decided-redis-sentinel", "decided-i10-outage-is-not-theft")
async def test_refreshes_lost_in_a_failover_are_not_theft(tmp_path: Path, loop_time: LoopTime) -> None:
    """The replica misses the last three of them; then the master dies."""
    with running_sentinel(tmp_path) as watched:
        async with service_at(watched.url) as (_, http):
            tokens = [tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]]
            await asyncio.to_thread(watched.wait_until_copied)
            watched.replica.process.send_signal(signal.SIGSTOP)
            for _ in range(3):
                tokens.append(tokens_of(await PHONE_APP.refresh(http, tokens[-1]))["refresh_token"])
            watched.kill_master()
            watched.replica.process.send_signal(signal.SIGCONT)

            newest = await go_on(loop_time, watched, http, tokens[-1])

            for older in tokens:
                retried = tokens_of(await PHONE_APP.refresh(http, older))
                assert retried["refresh_token"] == newest
            assert tokens_of(await PHONE_APP.refresh(http, newest))["refresh_token"] not in [*tokens, newest]


@pytest.mark.long
@pytest.mark.clause("decided-redis-sentinel", "decided-i7-revocation-is-final", "decided-durability")
async def test_logout_by_a_client_survives_a_planned_failover(tmp_path: Path, loop_time: LoopTime) -> None:
    with running_sentinel(tmp_path) as watched:
        async with service_at(watched.url, "replica") as (_, http):
            tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
            await until_status(lambda: http.get("/readyz"), 200)  # the seed file has all clients in force
            order_switch(watched)

            await advance_until_done(
                loop_time, watched, lambda: revoke_user(http, {"format": "email", "email": ALICE.username})
            )

            assert (await verify(http, tokens["access_token"])).status_code == 401
            assert_error(await PHONE_APP.refresh(http, tokens["refresh_token"]), 400, "invalid_grant")


async def go_on(loop_time: LoopTime, watched: Watched, http: httpx2.AsyncClient, refresh_token: str) -> str:
    answer = await advance_until_done(loop_time, watched, lambda: PHONE_APP.refresh(http, refresh_token))
    return tokens_of(answer)["refresh_token"]
