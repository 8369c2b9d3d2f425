"""The permit for checks of a busy client's secret is renewed by one request, and the others do not wait for it."""

from __future__ import annotations

import asyncio

import httpx2
import redis

from service.store.scripts import load_script
from service.worker import Worker
from tests.support.clients_and_users import GATEWAY
from tests.support.loop_time import LoopTime
from tests.support.redis_monitor import ONE_SERVER, recording_commands

CONCURRENT_REQUESTS = 50
PAUSE_MS = 60_000


@ONE_SERVER
async def test_one_asks_for_room_again_while_the_others_pass(
    http: httpx2.AsyncClient, http_worker: Worker, store: redis.Redis, held_time: LoopTime
) -> None:
    """Introspection of a token that does not have our form sends no other command to Redis."""
    assert (await GATEWAY.introspect(http, "nothing")).status_code == 200
    assert (await GATEWAY.introspect(http, "nothing")).status_code == 200
    # The permit is due for renewal, and has not expired yet.
    http_worker.authenticator.renewed_seconds = 3600
    with recording_commands(store) as commands:
        store.client_pause(PAUSE_MS, all=False)
        try:
            answers = [asyncio.create_task(GATEWAY.introspect(http, "nothing")) for _ in range(CONCURRENT_REQUESTS)]
            await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
            while sum(answer.done() for answer in answers) < CONCURRENT_REQUESTS - 1:
                waiting = [answer for answer in answers if not answer.done()]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert sum(answer.done() for answer in answers) == CONCURRENT_REQUESTS - 1
        finally:
            store.client_unpause()
        assert {(await answer).status_code for answer in answers} == {200}

    assert sum(f"EVALSHA {load_script('reserve_attempt').sha1} " in command for command in commands) == 1
