"""Made-up histories: tokens are issued, revoked and expire, gateways look them up, and Redis is made to suffer.

A token that is dead for longer than `TRUSTED_SECONDS` never has a live answer again, and one that lives is never told
to be dead. Whatever happens, an answer or an error comes within the time limit.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from service.app import Parts
from service.gateway import BearerLookup, StoreUnavailable
from service.protocol.user import User
from service.settings import load_settings
from service.store.links import TRUSTED_SECONDS
from service.tokens import RandomToken, make_access_token
from tests.cast import access_name_of
from tests.conftest import SECRET_KEY
from tests.fair_clock import read_fair_clock
from tests.faults.proxy import running_proxy
from tests.faults.stage import Stage, start_sessions
from tests.servers import stop

LATEST_SECONDS = 2.0
SHORT_SECONDS = 0.8
MOST_TOKENS = 200
LOOKERS = 6
PATIENCE_SECONDS = 60


@dataclass
class Token:
    """`dead_at`: from when on it is certainly dead; `doubtful_at`: from when on it may be. By the monotonic clock."""

    name: RandomToken
    username: str
    dead_at: float = float("inf")
    doubtful_at: float = float("inf")


@dataclass
class History:
    """All tokens, of which the last `MOST_TOKENS` are looked up; an answer about an older one may be under way."""

    seed: int
    tokens: list[Token] = field(default_factory=list)
    live: int = 0
    dead: int = 0
    errors: int = 0
    late: int = 0

    def note(self, token: Token, asked: float, is_live: bool) -> None:
        answered = time.monotonic()
        if is_live:
            self.live += 1
            self.late += asked > token.dead_at
            assert asked < token.dead_at + TRUSTED_SECONDS, f"seed {self.seed}: live {asked - token.dead_at} s after"
        else:
            self.dead += 1
            assert answered > token.doubtful_at, f"seed {self.seed}: refused though it lives"


class World:
    def __init__(self, stage: Stage, seed: int, lasting: Parts, passing: Parts) -> None:
        self.stage = stage
        self.chance = random.Random(seed)
        self.history = History(seed)
        self.lasting = lasting
        self.passing = passing
        self.is_over = False

    async def issue(self) -> None:
        username = f"user {self.chance.randrange(5)}"
        is_passing = self.chance.random() < 0.4
        asked = time.monotonic()
        sessions = await start_sessions(self.passing if is_passing else self.lasting, username, 3)
        for text, _ in sessions:
            token = Token(access_name_of(text), username)
            if is_passing:
                # A little before, as the clock of Redis and ours tick apart by less than a millisecond here.
                token.doubtful_at, token.dead_at = asked + SHORT_SECONDS - 0.01, time.monotonic() + SHORT_SECONDS
            self.history.tokens.append(token)

    async def revoke(self) -> None:
        if not self.history.tokens:
            return
        token = self._choose()
        token.doubtful_at = min(token.doubtful_at, time.monotonic())
        await self.lasting.access_tokens.revoke(token.name, client_id="phone-app")
        token.dead_at = min(token.dead_at, time.monotonic())

    async def revoke_all(self) -> None:
        user = User(realm="main", username=f"user {self.chance.randrange(5)}")
        covered = [token for token in self.history.tokens if token.username == user.username]
        for token in covered:
            token.doubtful_at = min(token.doubtful_at, time.monotonic())
        await self.lasting.revocations.revoke_all(user.identity.shard, user.identity.subject)
        for token in covered:
            token.dead_at = min(token.dead_at, time.monotonic())

    async def live_on(self) -> None:
        """One after the other: what is issued while everything is revoked would be neither covered nor not."""
        while not self.is_over:
            act = self.chance.choices([self.issue, self.revoke, self.revoke_all], [6, 10, 1])[0]
            try:
                await act()
            except StoreUnavailable:
                self.history.errors += 1
            await asyncio.sleep(self.chance.random() * 0.02)

    async def look(self, bearer: BearerLookup) -> None:
        while not self.is_over:
            for _ in range(self.chance.randrange(40)):
                if self.history.tokens:
                    await self._look_once(bearer, self._choose())
            assert await self._find(bearer, make_access_token("0a3").text) is not True
            await asyncio.sleep(self.chance.random() * 0.01)

    def _choose(self) -> Token:
        return self.chance.choice(self.history.tokens[-MOST_TOKENS:])

    async def _look_once(self, bearer: BearerLookup, token: Token) -> None:
        asked = time.monotonic()
        is_live = await self._find(bearer, token.name.text)
        if is_live is not None:
            self.history.note(token, asked, is_live)

    async def _find(self, bearer: BearerLookup, text: str) -> bool | None:
        asked = read_fair_clock()
        try:
            return await bearer.lookup(text) is not None
        except StoreUnavailable:
            self.history.errors += 1
            await asyncio.sleep(0.01)
            return None
        finally:
            seconds = read_fair_clock() - asked
            assert seconds < LATEST_SECONDS, f"seed {self.history.seed}: an answer after {seconds} s"

    async def suffer(self, seconds: float) -> None:
        """One fault after the other, with some peace between them, and on until a gateway was behind."""
        faults: list[Callable[[], Awaitable[None]]] = [self._cut_streams, self._restart, self._freeze, self._part]
        end = time.monotonic() + seconds
        while time.monotonic() < end or (self.history.late == 0 and time.monotonic() < end + PATIENCE_SECONDS):
            await asyncio.sleep(0.1 + self.chance.random() * 0.6)
            await self.chance.choice(faults)()
        await asyncio.sleep(1.5)
        self.is_over = True

    async def _cut_streams(self) -> None:
        for client in self.stage.store.client_list():
            if client["name"] == "token-lookups":
                self.stage.store.client_kill_filter(_id=client["id"])

    async def _restart(self) -> None:
        with self.stage.killed():
            await asyncio.sleep(self.chance.random() * 0.3)

    async def _freeze(self) -> None:
        with self.stage.frozen():
            await asyncio.sleep(self.chance.random() * 1.6)

    async def _part(self) -> None:
        with self.stage.cut_off():
            await asyncio.sleep(self.chance.random() * 1.6)


async def _run(folder: Path, seed: int, seconds: float) -> History:
    stage = Stage(folder)
    environment = {"REDIS_URL": stage.redis.url, "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY}
    passing = environment | {"TOKEN_SERVICE_ACCESS_TOKEN_TTL": str(SHORT_SECONDS)}
    async with AsyncExitStack() as open_things:
        open_things.callback(lambda: stop(stage.redis.process, signal.SIGKILL))
        stage.proxy = open_things.enter_context(running_proxy(stage.redis.port))
        parts = [Parts(load_settings(each), lambda: 0) for each in (environment, passing)]
        bearers = [BearerLookup(stage.redis.url), BearerLookup(stage.redis.url), BearerLookup(stage.proxy.url)]
        for close in (*(part.close for part in parts), *(bearer.close for bearer in bearers)):
            open_things.push_async_callback(close)
        world = World(stage, seed, *parts)
        async with asyncio.TaskGroup() as group:
            group.create_task(world.live_on())
            for bearer in bearers * LOOKERS:
                group.create_task(world.look(bearer))
            group.create_task(world.suffer(seconds))
    stage.store.close()
    return world.history


@pytest.mark.clause("decided-memory-follows-redis", "decided-gateway-stops-trusting", "decided-i8-fail-closed")
@pytest.mark.parametrize("seconds", [8, pytest.param(120, marks=pytest.mark.long)])
async def test_no_token_is_live_long_after_its_end_whatever_redis_suffers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seconds: float
) -> None:
    caplog.set_level(logging.CRITICAL)
    seed = random.SystemRandom().randrange(10**6)

    history = await _run(tmp_path, seed, seconds)

    assert history.live > 100, f"seed {seed}"
    assert history.dead > 100, f"seed {seed}"
    assert history.late > 0, f"seed {seed}: no gateway was ever behind, so nothing was proved"
