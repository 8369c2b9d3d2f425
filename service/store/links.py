"""The way to one server: kept up, its clock known, and its word about our memory never older than a second.

A link beats four times a second: it asks for the time on the very connection that invalidations come by. Answers and
invalidations keep their order, so an answered beat proves that all changes from before it have arrived here. What was
remembered from the link may be believed for `TRUSTED_SECONDS` after the last beat that was answered was sent; a frozen
server, a cut network or an event loop that stood still cannot stretch that.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context
from typing import Any, Final, Generic, TypeVar

from service.store.deadline import CONNECT_SECONDS, StoreUnavailable, translate
from service.store.redis_url import Node, RedisUrl
from service.store.wire import Command, NotSent, Wire, as_it_came, open_wire

BEAT_SECONDS: Final = 0.25
TRUSTED_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 0.1
"""An answer that lies there unread is heard before its time limit is held against it: our own loop stood still."""

LONGEST_SILENCE_SECONDS: Final = BEAT_SECONDS + TRUSTED_SECONDS + PATIENCE_SECONDS
"""After it a link whose server says nothing has ended, and so have all calls that waited for an answer."""

PAUSE_SECONDS: Final = 0.1
"""After an attempt that failed."""

STABLE_SECONDS: Final = 1.0
LONG_PAUSE_SECONDS: Final = 0.5
"""After a connection that did not last for `STABLE_SECONDS`; after another one there is no pause."""

DRIFT_SECONDS: Final = 0.1
"""How far Redis's clock and ours may come apart before what was reckoned with the old difference is forgotten."""

CLOSED: Final = "the store is closed"

log = logging.getLogger("service.store")

read_clock: Callable[[], float] = time.monotonic
"""Seconds by a clock that nobody sets; on Linux by one that goes on while the machine sleeps."""
if sys.platform == "linux":
    read_clock = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)

Value = TypeVar("Value")
Forget = Callable[[Sequence[bytes] | None], None]
"""Told which keys changed; None: any of them may have."""


class Current(Generic[Value]):
    """What a task in the background keeps up: there, on its way, or not to be had, and why."""

    def __init__(self) -> None:
        self.value: Value | None = None
        self._trouble: str | None = None
        self._end: str | None = None
        self._changed = asyncio.Event()

    def set(self, value: Value) -> None:
        self.value, self._trouble = value, None
        self._changed.set()

    def fail(self, trouble: str) -> bool:
        """Until the next success whoever asks is told at once; the task goes on trying. False: that was so before."""
        is_news = self._trouble is None
        self.value, self._trouble = None, trouble
        self._changed.set()
        return is_news

    def lose(self) -> None:
        """Whoever asks waits for the next attempt, which is about to begin."""
        self.value, self._trouble = None, None
        self._changed.clear()

    def end(self, why: str) -> None:
        """For good: whoever asks or waits may have better luck elsewhere."""
        self.value, self._end = None, why
        self._changed.set()

    async def get(self) -> Value:
        while self.value is None:
            if self._end is not None:
                raise NotSent(self._end)
            if self._trouble is not None:
                raise StoreUnavailable(self._trouble)
            await self._changed.wait()
        return self.value


class Link:
    """`find_node` says where the server is, before each attempt; None: the unix socket of the URL.

    `is_tracked`: Redis tells of changes to the keys read here, and `forget` hears of them. `check` is made with each
    beat, and what it raises ends the connection. `purpose` is a word for the log and for CLIENT LIST.
    """

    def __init__(
        self,
        url: RedisUrl,
        find_node: Callable[[], Awaitable[Node | None]],
        forget: Forget,
        *,
        purpose: str,
        is_tracked: bool,
        check: Callable[[Wire], Awaitable[None]] | None = None,
    ) -> None:
        self.trusted_until = 0.0
        self.node: Node | None = None
        self._clock_lead: float | None = None
        self._url = url
        self._purpose = purpose
        self._find_node = find_node
        self._forget = forget
        self._is_tracked = is_tracked
        self._check = check
        self._wire: Current[Wire] = Current()
        # In a context of its own: the request that happens to come first is not meant.
        self._task = asyncio.create_task(self._keep_up(), context=Context())

    @property
    def is_up(self) -> bool:
        return self._wire.value is not None

    def send_now(self, command: Command, take: Callable[[Any], Value], *, is_tracked: bool) -> asyncio.Future[Value]:
        """Only where it is up. With `is_tracked` Redis tells when the key of the command changes."""
        assert self._wire.value is not None
        return _send(self._wire.value, command, take, is_tracked)

    async def send(self, command: Command, take: Callable[[Any], Value], *, is_tracked: bool) -> Value:
        """Raises WireLost where the connection ends meanwhile, StoreUnavailable where there is none to be had."""
        return await _send(await self.find_wire(), command, take, is_tracked)

    async def call(self, *command: str) -> Any:
        """The same for a command without a key."""
        return await (await self.find_wire()).call(*command)

    async def find_wire(self) -> Wire:
        """The connection of this moment, for commands that belong together; raises what `send` raises."""
        return self._wire.value or await self._wire.get()

    async def send_asking(self, command: Command) -> Any:
        """Of a key that is on its way to this node."""
        wire = await self.find_wire()
        asking, answer = wire.send(("ASKING",), as_it_came), wire.send(command, as_it_came)
        await asyncio.wait((asking, answer))
        asking.result()
        return answer.result()

    def deadline(self, time_ms: float) -> float:
        """What `read_clock` shows when Redis's shows this time, or a little earlier; not before the first beat."""
        assert self._clock_lead is not None
        return time_ms / 1000 - self._clock_lead

    def now_ms(self) -> int | None:
        """Redis's clock, as far as it was heard; None before the first beat."""
        return None if self._clock_lead is None else int((read_clock() + self._clock_lead) * 1000)

    def leave(self, why: str) -> None:
        """Ends the connection, if there is one; the next attempt asks again where the server is."""
        if self._wire.value is not None:
            self._wire.value.close(why)

    async def close(self, why: str = CLOSED) -> None:
        try:
            await end_task(self._task)
        finally:
            self._wire.end(why)

    @property
    def _address(self) -> str:
        if self.node is not None:
            return f"{self.node[0]}:{self.node[1]}"
        return f"the master {self._url.master_name}" if self._url.master_name else "the unix socket"

    async def _keep_up(self) -> None:
        """The log hears of each change once, and of the end of an outage as loudly as of its beginning."""
        lost_at: float | None = None
        while True:
            try:
                self.node = await self._find_node()
                async with asyncio.timeout(CONNECT_SECONDS):
                    wire = await self._connect()
            except Exception as error:
                lost_at = lost_at or read_clock()
                trouble = _describe(error, CONNECT_SECONDS)
                if self._wire.fail(trouble):
                    log.warning("no connection for %s to %s: %s", self._purpose, self._address, trouble)
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                self._tell_connected(lost_at)
                connected_at = read_clock()
                try:
                    why = await self._use(wire)
                finally:
                    wire.close(CLOSED)
                lost_at = read_clock()
                log.warning("the connection for %s to %s ended: %s", self._purpose, self._address, why)
                if lost_at - connected_at < STABLE_SECONDS:
                    await asyncio.sleep(LONG_PAUSE_SECONDS)

    def _tell_connected(self, lost_at: float | None) -> None:
        if lost_at is None:
            log.info("connected for %s to %s", self._purpose, self._address)
        else:
            seconds = read_clock() - lost_at
            log.warning("connected for %s to %s again, after %.1f s", self._purpose, self._address, seconds)

    async def _connect(self) -> Wire:
        wire = await open_wire(self._url, self.node, self._purpose, self._take_push, self._take_loss)
        try:
            if self._is_tracked:
                await wire.call("CLIENT", "TRACKING", "ON", "OPTIN")
            await self._beat(wire)
        except BaseException:
            wire.close("the connection was given up")
            raise
        return wire

    async def _use(self, wire: Wire) -> str:
        """Until it is lost; returns why."""
        if not wire.lost.done():
            self._wire.set(wire)
        beats: set[asyncio.Task[None]] = set()
        while not wire.lost.done():
            await asyncio.wait({wire.lost}, timeout=BEAT_SECONDS)
            # Whether or not the last one was answered: what is sent after it must not wait for two time limits.
            beats.add(beat := asyncio.create_task(self._beat_or_lose(wire)))
            beat.add_done_callback(beats.discard)
        return wire.lost.result()

    async def _beat_or_lose(self, wire: Wire) -> None:
        try:
            await _answered(self._beat(wire))
        except Exception as error:
            wire.close(_describe(error, TRUSTED_SECONDS))

    async def _beat(self, wire: Wire) -> None:
        sent = read_clock()
        seconds, microseconds = await wire.call("TIME")
        self._note_clock(int(seconds) + int(microseconds) / 1e6, sent)
        if self._check is not None:
            await self._check(wire)
        if not wire.lost.done():
            self.trusted_until = sent + TRUSTED_SECONDS

    def _note_clock(self, redis_time: float, sent: float) -> None:
        """Redis read its clock after `sent` and before now; the greatest lead makes deadlines early, not late."""
        least, most = redis_time - read_clock(), redis_time - sent
        if self._clock_lead is None:
            self._clock_lead = most
        elif least > self._clock_lead + DRIFT_SECONDS:
            self._forget(None)
            self._clock_lead = most
        elif most < self._clock_lead - DRIFT_SECONDS:
            self._clock_lead = most

    def _take_push(self, push: Sequence[Any]) -> None:
        if push[0] == b"invalidate":
            self._forget(push[1])

    def _take_loss(self) -> None:
        self.trusted_until = 0.0
        self._forget(None)
        if self._wire.value is not None:  # else it was lost before it was of any use
            self._wire.lose()


def _send(wire: Wire, command: Command, take: Callable[[Any], Value], is_tracked: bool) -> asyncio.Future[Value]:
    if is_tracked:
        # Of the next command alone; its answer says nothing that an error of the other would not.
        wire.send(("CLIENT", "CACHING", "YES"), as_it_came).add_done_callback(_look_at)
    return wire.send(command, take)


def _look_at(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()


async def _answered(beat: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(beat)
    try:
        for seconds in (TRUSTED_SECONDS, PATIENCE_SECONDS):
            done, _ = await asyncio.wait({task}, timeout=seconds)
            if done:
                return task.result()
    finally:
        task.cancel()
    raise TimeoutError


async def end_task(task: asyncio.Task[None]) -> None:
    """Whatever it died of, and without taking a cancellation of our own for its."""
    task.cancel()
    await asyncio.wait({task})


def _describe(error: Exception, limit_seconds: float) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {limit_seconds:g} s"
    return str(translate(error))
