"""Waits for a failover while a master fails."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx2

from tests.cluster.nodes import MASTER_NAME, Shard, Watched
from tests.support.clients_and_users import assert_error
from tests.support.loop_time import LoopTime
from tests.support.waiting import run_loop_once


async def advance_until_done(
    loop_time: LoopTime, shard: Shard, ask: Callable[[], Awaitable[httpx2.Response]]
) -> httpx2.Response:
    """Ask until the request succeeds and a replica was promoted, at the pace of the machine. Until then it is 503."""
    promotion = asyncio.create_task(asyncio.to_thread(wait_for_promotion, shard))
    with loop_time.running_at(1):
        while True:
            is_promoted = promotion.done()
            answer = await ask()
            if answer.is_success and is_promoted:
                await promotion
                return answer
            if not answer.is_success:
                assert_error(answer, 503, "temporarily_unavailable")
                assert int(answer.headers["retry-after"]) >= 1
            await run_loop_once()


def order_switch(shard: Shard) -> None:
    """Order a planned failover."""
    if isinstance(shard, Watched):
        with shard.sentinels[0].connect() as sentinel:
            sentinel.sentinel_failover(MASTER_NAME)
    else:
        with shard.replica.connect() as replica:
            replica.execute_command("CLUSTER", "FAILOVER")


def wait_for_promotion(shard: Shard) -> None:
    shard.wait_for_promotion()
    if isinstance(shard, Watched):
        shard.wait_until_named()
