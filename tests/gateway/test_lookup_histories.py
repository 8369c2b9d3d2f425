"""Random histories: tokens are issued, revoked and expire while gateways look them up and Redis fails.

A token is never live again more than `TRUSTED_SECONDS` after the answer to its revocation. A live token is never
refused. Revocations are judged by the clock of the gateways, expiry by that of Redis. Each reading is compared with an
earlier one of the same clock. Time passes at the pace of Redis. A slow machine makes a history longer, but no
judgement wrong.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import pytest

from service.config.settings import load_settings
from service.crypto.keyring import make_access_token
from service.gateway import BearerLookup, StoreUnavailable
from service.protocol.token_form import RandomToken
from service.protocol.user import User
from service.redis_client.managed_connection import TRUSTED_SECONDS
from service.worker import Worker
from tests.conftest import SECRET_KEY
from tests.faults.deployment import Deployment, start_sessions
from tests.faults.proxy import running_proxy
from tests.support.clients_and_users import access_name_of
from tests.support.loop_time import LoopTime
from tests.support.servers import stop
from tests.support.waiting import until

SHORT_MS = 800
MAX_TOKENS = 40
MAX_KNOWN = 20
MIN_MET = 3
CONCURRENT_LOOKUPS = 2
MIN_ANSWERS = 100
FEW, MANY = 20, 500
"""Bounds of how many lookups end between two acts, and in a time of peace or in a fault that is not felt."""


@dataclass(eq=False)
class Token:
    """A token and what is known of its end.

    `is_doomed`: a revocation of it has begun. `dead_at`: when one was answered, by the clock of the gateways.
    `ends_ms`: when it expires by the clock of Redis, at the earliest and at the latest.
    """

    name: RandomToken
    username: str
    ends_ms: tuple[float, float]
    is_doomed: bool = False
    dead_at: float = inf


@dataclass
class History:
    """Every token, of which the last `MOST_TOKENS` are looked up. An answer about an older one may still be pending.

    `heard_ms`: the latest time that the clock of Redis is known to have shown. `refused`: tokens that were refused
    without a revocation. Whether they had expired is judged at the next reading of Redis' clock.
    """

    seed: int
    tokens: list[Token] = field(default_factory=list)
    refused: list[Token] = field(default_factory=list)
    heard_ms: int = 0
    live: int = 0
    dead: int = 0
    late: int = 0

    def note(self, token: Token, asked: float, heard_ms: int, is_live: bool) -> None:
        """Judge an answer. `asked` and `heard_ms` were read before the question."""
        if is_live:
            self.live += 1
            self.late += asked > token.dead_at
            assert asked < token.dead_at + TRUSTED_SECONDS, f"seed {self.seed}: live {asked - token.dead_at} s after"
            assert heard_ms < token.ends_ms[1], f"seed {self.seed}: live {heard_ms - token.ends_ms[1]} ms after its end"
        else:
            self.dead += 1
            if not token.is_doomed:
                self.refused.append(token)

    def hear(self, now_ms: int, refused: list[Token]) -> None:
        """Judge the tokens that were refused before Redis showed this time."""
        self.heard_ms = max(self.heard_ms, now_ms)
        assert all(token.ends_ms[0] <= now_ms for token in refused), f"seed {self.seed}: refused though it lives"

    @property
    def proves_something(self) -> bool:
        """Enough answers of each kind, of a gateway that was behind too."""
        return min(self.live, self.dead, self.late) > MIN_ANSWERS


class LookupWorkload:
    """The gateways and the tokens of one history. The network of the gateway `proxied` can be cut.

    `ended` counts the lookups of each gateway that have ended. `known`: tokens that each gateway accepted again and
    again, so that it may remember them, until it refuses them. `met` counts how often in a row each gateway accepted a
    token.
    """

    def __init__(
        self,
        deployment: Deployment,
        seed: int,
        long_lived: Worker,
        short_lived: Worker,
        bearers: list[BearerLookup],
        loop_time: LoopTime,
    ) -> None:
        self.deployment = deployment
        self.loop_time = loop_time
        self.chance = random.Random(seed)
        self.history = History(seed)
        self.long_lived = long_lived
        self.short_lived = short_lived
        self.bearers = bearers
        self.proxied = bearers[-1]
        self.ended: Counter[BearerLookup] = Counter()
        self.errors: Counter[BearerLookup] = Counter()
        self.known: dict[BearerLookup, list[Token]] = {bearer: [] for bearer in bearers}
        self.met: dict[BearerLookup, Counter[Token]] = {bearer: Counter() for bearer in bearers}
        self.looking = 0
        self.is_over = False

    async def issue(self) -> None:
        username = f"user {self.chance.randrange(5)}"
        worker = self.short_lived if self.chance.random() < 0.4 else self.long_lived
        lifetime_ms = worker.settings.access_token_ttl_ms
        before_ms = self.history.heard_ms
        sessions = await start_sessions(worker, username, 3)
        tokens = [Token(access_name_of(text), username, (before_ms + lifetime_ms, inf)) for text, _ in sessions]
        self.history.tokens += tokens
        after_ms = await worker.redis.read_clock_ms()
        for token in tokens:
            token.ends_ms = before_ms + lifetime_ms, after_ms + lifetime_ms

    async def revoke(self) -> None:
        if not self.history.tokens:
            return
        known = self.known[self.chance.choice([*self.bearers, self.proxied])]
        token = self.chance.choice(known) if known and self.chance.random() < 0.5 else self._choose()
        token.is_doomed = True
        await self.long_lived.access_tokens.revoke(token.name, client_id="phone-app")
        token.dead_at = min(token.dead_at, self.loop_time.read())

    async def revoke_all(self) -> None:
        user = User(realm="main", username=f"user {self.chance.randrange(5)}")
        covered = [token for token in self.history.tokens if token.username == user.username]
        for token in covered:
            token.is_doomed = True
        await self.long_lived.revocations.revoke_all(user.identity.shard, user.identity.subject)
        for token in covered:
            token.dead_at = min(token.dead_at, self.loop_time.read())

    async def live_on(self) -> None:
        """Act again and again. What is issued while everything is revoked would be neither covered nor not."""
        while not self.is_over:
            act = self.chance.choices([self.issue, self.revoke, self.revoke_all], [6, 10, 1])[0]
            with suppress(StoreUnavailable):
                await act()
            target = self.ended.total() + self.chance.randrange(FEW)
            while self.ended.total() < target and not self.is_over:  # noqa: ASYNC110 - others count it
                await asyncio.sleep(0)

    async def hear(self) -> None:
        """Ask Redis for the time again and again."""
        while not self.is_over:
            refused, self.history.refused = self.history.refused, []
            try:
                self.history.hear(await self.long_lived.redis.read_clock_ms(), refused)
            except StoreUnavailable:
                self.history.refused += refused
            await asyncio.sleep(0)

    async def look(self, bearer: BearerLookup) -> None:
        """Look up tokens of all kinds, garbage too."""
        with self._counted():
            while not self.is_over:
                for _ in range(self.chance.randrange(10)):
                    if self.history.tokens:
                        await self._look_once(bearer, self._choose())
                assert await self._find(bearer, make_access_token("0a3").text) is not True
                await asyncio.sleep(0)

    async def look_again(self, bearer: BearerLookup, group: asyncio.TaskGroup) -> None:
        """Look up tokens that were live. What memory answers does not wait for the lookups that Redis has to answer."""
        under_way: set[Token] = set()

        async def look(token: Token) -> None:
            with self._counted():
                under_way.add(token)
                await self._look_once(bearer, token)
                under_way.discard(token)

        while not self.is_over:
            others = [token for token in self.known[bearer] if token not in under_way]
            if others:
                group.create_task(look(self.chance.choice(others)))
            await asyncio.sleep(0)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.looking += 1
        yield
        self.looking -= 1

    def _choose(self) -> Token:
        return self.chance.choice(self.history.tokens[-MAX_TOKENS:])

    async def _look_once(self, bearer: BearerLookup, token: Token) -> None:
        asked, heard_ms = self.loop_time.read(), self.history.heard_ms
        is_live = await self._find(bearer, token.name.text)
        if is_live is None:
            return
        self.history.note(token, asked, heard_ms, is_live)
        known, met = self.known[bearer], self.met[bearer]
        met[token] = met[token] + 1 if is_live else 0
        if met[token] == MIN_MET and len(known) < MAX_KNOWN:
            known.append(token)
        elif not is_live and token in known:
            known.remove(token)

    async def _find(self, bearer: BearerLookup, text: str) -> bool | None:
        try:
            return await bearer.lookup(text) is not None
        except StoreUnavailable:
            self.errors[bearer] += 1
            await asyncio.sleep(0)
            return None
        finally:
            self.ended[bearer] += 1

    async def suffer(self, rounds: int) -> None:
        """Commit one fault after the other, with some peace between them, and on until a gateway was behind."""
        faults: list[Callable[[], Awaitable[None]]] = [self._cut_streams, self._restart, self._freeze, self._part]
        for _ in range(rounds):
            for fault in self.chance.sample(faults, len(faults)):
                await self._peace()
                await fault()
        while not self.history.proves_something:
            await self._peace()
            with self.deployment.cut_off():
                await self._wait_for_errors([self.proxied])
        await self._peace()
        self.is_over = True
        await until(lambda: self.looking == 0, "all lookups to end")

    async def _peace(self) -> None:
        """Wait until each gateway has answers again."""
        before = {bearer: self.ended[bearer] - self.errors[bearer] for bearer in self.bearers}
        least = self.chance.randrange(MANY)
        await until(
            lambda: all(self.ended[bearer] - self.errors[bearer] > before[bearer] + least for bearer in self.bearers),
            "answers at each gateway",
        )

    async def _cut_streams(self) -> None:
        for client in self.deployment.store.client_list():
            if client["name"] == "token-lookups":
                self.deployment.store.client_kill_filter(_id=client["id"])

    async def _restart(self) -> None:
        with self.deployment.killed():
            await self._feel(self.bearers)

    async def _freeze(self) -> None:
        with self.deployment.frozen():
            await self._feel(self.bearers)

    async def _part(self) -> None:
        with self.deployment.cut_off():
            await self._feel([self.proxied])

    async def _feel(self, bearers: list[BearerLookup]) -> None:
        """Wait until some lookups have ended, or until these gateways have errors."""
        if self.chance.random() < 0.5:
            await self._wait_for_errors(bearers)
        else:
            least = self.ended.total() + self.chance.randrange(MANY)
            await until(lambda: self.ended.total() > least, "some lookups")

    async def _wait_for_errors(self, bearers: list[BearerLookup]) -> None:
        """Wait until none of these gateways believes its memory any more."""
        before = self.errors.copy()
        await until(lambda: all(self.errors[bearer] > before[bearer] for bearer in bearers), "errors")


async def _run(folder: Path, seed: int, rounds: int, loop_time: LoopTime) -> History:
    deployment = Deployment(folder)
    environment = {"REDIS_URL": deployment.redis.url, "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY}
    short_lived = environment | {"TOKEN_SERVICE_ACCESS_TOKEN_TTL": str(SHORT_MS / 1000)}
    async with AsyncExitStack() as open_things:
        open_things.callback(lambda: stop(deployment.redis.process, signal.SIGKILL))
        deployment.proxy = open_things.enter_context(running_proxy(deployment.redis.port))
        long_lived, short = (Worker(load_settings(each), lambda: 0) for each in (environment, short_lived))
        bearers = [
            BearerLookup(deployment.redis.url),
            BearerLookup(deployment.redis.url),
            BearerLookup(deployment.proxy.url),
        ]
        for close in (long_lived.close, short.close, *(bearer.close for bearer in bearers)):
            open_things.push_async_callback(close)
        workload = LookupWorkload(deployment, seed, long_lived, short, bearers, loop_time)
        async with asyncio.TaskGroup() as group:
            group.create_task(workload.live_on())
            group.create_task(workload.hear())
            for bearer in bearers:
                group.create_task(workload.look_again(bearer, group))
            for bearer in bearers * CONCURRENT_LOOKUPS:
                group.create_task(workload.look(bearer))
            group.create_task(workload.suffer(rounds))
    deployment.store.close()
    return workload.history


@pytest.mark.clause("decided-memory-follows-redis", "decided-gateway-stops-trusting", "decided-i8-fail-closed")
@pytest.mark.parametrize("rounds", [2, pytest.param(30, marks=pytest.mark.long)])
async def test_no_token_is_live_long_after_its_end_whatever_redis_suffers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, rounds: int, loop_time: LoopTime
) -> None:
    caplog.set_level(logging.CRITICAL)
    seed = random.SystemRandom().randrange(10**6)

    with loop_time.running_at(1):
        history = await _run(tmp_path, seed, rounds, loop_time)

    assert history.proves_something, f"seed {seed}"
