"""The permit for checks of a busy client's secret is renewed by one of the requests that arrive together."""

from __future__ import annotations

import asyncio

import httpx2
import redis

from service.store.scripts import load_script
from service.worker import Worker
from tests.support.clients_and_users import GATEWAY
from tests.support.redis_monitor import ONE_SERVER, recording_commands


@ONE_SERVER
async def test_requests_at_the_same_time_ask_once_for_room(
    http: httpx2.AsyncClient, http_worker: Worker, store: redis.Redis
) -> None:
    """Introspection of a token that does not have our form sends no other command to Redis."""
    http_worker.authenticator.admitted_seconds = 0
    assert (await GATEWAY.introspect(http, "nothing")).status_code == 200
    assert (await GATEWAY.introspect(http, "nothing")).status_code == 200
    http_worker.authenticator.admitted_seconds = 3600
    with recording_commands(store) as commands:
        answers = await asyncio.gather(*(GATEWAY.introspect(http, "nothing") for _ in range(50)))

    assert {answer.status_code for answer in answers} == {200}
    assert sum(f"EVALSHA {load_script('reserve_attempt').sha1} " in command for command in commands) == 1
