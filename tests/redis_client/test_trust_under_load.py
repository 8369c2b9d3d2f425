"""How long a cache is used after its server is demoted or frozen, while many lookups and many answers go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest

from service.gateway import BearerLookup, StoreUnavailable
from service.gateway.access_record import PROBE_KEYS
from service.redis_client.deadline import DEADLINE_SECONDS
from service.redis_client.managed_connection import HEARTBEAT_SECONDS
from service.redis_client.options import ConnectionOptions
from service.redis_client.router import Router
from service.redis_client.url import parse_redis_url
from tests.redis_client.lookups import remember
from tests.redis_client.moving_masters import demote, put_token
from tests.redis_client.settled_time import SettledTime
from tests.support.loop_time import SAME_SECONDS, LoopTime
from tests.support.servers import RedisServer

LOOKUPS = 100
READERS = 20
STEP_SECONDS = 0.02
TRUSTED_SECONDS = 1.0
ROLE_SECONDS = 0.5
"""The interval at which a server is asked whether it is a master."""

AFTER_A_BEAT = pytest.mark.parametrize("seconds", [0.0, 0.24, 0.48])
"""The time between a heartbeat and the fault."""


class Contenders:
    """Calls that look up a cached token, and calls that read a key on the same connection.

    `live_at` has the times at which a lookup found the token live.
    """

    def __init__(self, router: Router, bearer: BearerLookup, token: str, read_time: Callable[[], float]) -> None:
        self.live_at: list[float] = []
        self.refused = 0
        self.answers = 0
        self._router = router
        self._bearer = bearer
        self._token = token
        self._read_time = read_time
        self._calls: list[asyncio.Task[None] | None] = [None] * (LOOKUPS + READERS)

    def call_again(self) -> None:
        """Start each call again that has ended."""
        for number, call in enumerate(self._calls):
            if call is None or call.done():
                work = self._look() if number < LOOKUPS else self._read()
                self._calls[number] = asyncio.create_task(self._count_refusal(work))

    async def run(self, seconds: float, let_pass: Callable[[float], Awaitable[None]]) -> None:
        """Let time pass in steps, and call in each of them."""
        for _ in range(round(seconds / STEP_SECONDS)):
            self.call_again()
            await let_pass(STEP_SECONDS)

    async def end(self) -> None:
        calls = [call for call in self._calls if call is not None]
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)

    async def _count_refusal(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except StoreUnavailable:
            self.refused += 1

    async def _look(self) -> None:
        if await self._bearer.lookup(self._token) is not None:
            self.live_at.append(self._read_time())

    async def _read(self) -> None:
        await self._router.ask("access:other", ("GET", "access:other"), is_read=True)
        self.answers += 1


@asynccontextmanager
async def contending(server: RedisServer, read_time: Callable[[], float]) -> AsyncIterator[Contenders]:
    """Yield contenders for a token that is in the cache."""
    token = put_token(server)
    router = Router(ConnectionOptions(parse_redis_url(server.url), "requests", probe_keys=PROBE_KEYS))
    bearer = BearerLookup(router)
    await remember(bearer, token)
    contenders = Contenders(router, bearer, token, read_time)
    yield contenders
    await contenders.end()
    await router.close()


@pytest.mark.clause("decided-gateway-stops-trusting", "decided-i8-fail-closed")
@AFTER_A_BEAT
async def test_a_demoted_master_is_not_trusted_however_much_it_answers(
    settled_time: SettledTime, servers: list[RedisServer], seconds: float
) -> None:
    """It goes on to answer reads, and would never tell of what is revoked at its successor."""
    async with contending(servers[0], settled_time.read) as contenders:
        await contenders.run(4 * HEARTBEAT_SECONDS + seconds, settled_time.let_pass)
        assert contenders.refused == 0
        answers = contenders.answers

        demote(servers[0])
        demoted_at = settled_time.read()
        await contenders.run(2 * TRUSTED_SECONDS, settled_time.let_pass)

        assert demoted_at <= max(contenders.live_at) <= demoted_at + ROLE_SECONDS + SAME_SECONDS
        assert contenders.answers > answers  # the replica answered until a heartbeat asked for its role
        assert contenders.refused > LOOKUPS


@pytest.mark.clause("decided-gateway-stops-trusting", "decided-i8-fail-closed")
@AFTER_A_BEAT
async def test_a_frozen_server_is_not_trusted_beyond_a_second_under_load(
    settled_time: SettledTime, held_time: LoopTime, servers: list[RedisServer], seconds: float
) -> None:
    async with contending(servers[0], held_time.read) as contenders:
        await contenders.run(4 * HEARTBEAT_SECONDS + seconds, settled_time.let_pass)
        assert contenders.refused == 0

        with servers[0].frozen():
            frozen_at = held_time.read()
            await contenders.run(2 * DEADLINE_SECONDS, held_time.advance_in_steps)

        assert frozen_at <= max(contenders.live_at) <= frozen_at + TRUSTED_SECONDS + SAME_SECONDS
        assert contenders.refused > LOOKUPS
