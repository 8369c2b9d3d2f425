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
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any, Final, NamedTuple, TypeVar

from redis.exceptions import ResponseError

from .availability import Current
from .backoff import Backoff
from .clock import read_clock
from .connection import (
    Command,
    Wire,
    as_it_came,
    gather_answers,
    open_wire,
)
from .deadline import CONNECT_SECONDS, translate
from .purpose import Purpose
from .tasks import PATIENCE_SECONDS, end_task, finish_within
from .url import Node

BEAT_SECONDS: Final = 0.25
TRUSTED_SECONDS: Final = 1.0

LONGEST_SILENCE_SECONDS: Final = BEAT_SECONDS + TRUSTED_SECONDS + PATIENCE_SECONDS
"""After it a link whose server says nothing has ended, and so have all calls that waited for an answer."""

MAX_PENDING: Final = 10_000
"""Requests on one connection that wait for their answers. The heartbeat bounds how long they wait."""

DRIFT_SECONDS: Final = 0.1
"""How far Redis's clock and ours may come apart before what was reckoned with the old difference is forgotten."""

CLOSED: Final = "the store is closed"

log = logging.getLogger("service.store")

if sys.platform == "linux":
    read_clock = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)

Value = TypeVar("Value")


class TooManyPending(ResponseError):
    """The command was not sent, since too many wait for their answers. To send it again at once would not help."""


class Check(NamedTuple):
    """The question that each heartbeat asks beside the time; a command of None is not asked.

    `judge` gets the answer or the error, and raises to end the connection.
    """

    find_command: Callable[[], Command | None]
    judge: Callable[[Any], None]


class Trust:
    """Says until when, by `read_clock`, answers of one connection may be believed. 0: not any more, or not yet."""

    __slots__ = ("until",)

    def __init__(self) -> None:
        self.until = 0.0


NO_CHECK: Final = Check(lambda: None, lambda _: None)

_TIME: Final = ("TIME",)
_TRACK: Final = ("CLIENT", "TRACKING", "ON", "OPTIN")
_TRACK_NEXT: Final = ("CLIENT", "CACHING", "YES")
"""Track the key of the next command."""


class Link:
    """Keeps up the connection to one server.

    `find_node` says where the server is, before each attempt; None: the unix socket of the URL. `trust` belongs to what
    is read here now; another connection has another one.
    """

    def __init__(
        self, purpose: Purpose, find_node: Callable[[], Awaitable[Node | None]], check: Check = NO_CHECK
    ) -> None:
        self.trust = Trust()
        self.node: Node | None = None
        self._clock_lead: float | None = None
        self._purpose = purpose
        self._find_node = find_node
        self._check = check
        self._is_tracked = False
        self._refusal: str | None = None
        self._backoff = Backoff()
        self._lost_at: float | None = None
        self._is_hurried = asyncio.Event()
        self._wire: Current[Wire] = Current()
        # In a context of its own: the request that happens to come first is not meant.
        self._task = asyncio.create_task(self._keep_up(), context=Context())

    @property
    def is_up(self) -> bool:
        return self._wire.value is not None

    def send_now(self, command: Command, take: Callable[[Any], Value], *, is_tracked: bool) -> asyncio.Future[Value]:
        """Send a command on a link that is up. With `is_tracked` Redis tells when the key of the command changes."""
        assert self._wire.value is not None
        return self._send(self._wire.value, command, take, is_tracked)

    async def send(self, command: Command, take: Callable[[Any], Value], *, is_tracked: bool) -> Value:
        """Raises WireLost where the connection ends meanwhile, StoreUnavailable where there is none to be had."""
        return await self._send(await self.find_wire(), command, take, is_tracked)

    async def call(self, *command: str) -> Any:
        """Send a command without a key. Raises what `send` raises."""
        return await (await self.find_wire()).call(*command)

    async def find_wire(self) -> Wire:
        """Return the connection of this moment, for commands that belong together. Raises what `send` raises."""
        return self._wire.value or await self._wire.get()

    async def send_asking(self, command: Command) -> Any:
        """Send a command for a key that is on its way to this node."""
        wire = await self.find_wire()
        _, answer = await gather_answers([wire.send(("ASKING",), as_it_came), wire.send(command, as_it_came)])
        return answer

    def deadline(self, time_ms: float) -> float:
        """What `read_clock` shows when Redis's shows this time, or a little earlier; not before the first beat."""
        assert self._clock_lead is not None
        return time_ms / 1000 - self._clock_lead

    def now_ms(self) -> int | None:
        """Redis's clock, as far as it was heard; None before the first beat."""
        return None if self._clock_lead is None else int((read_clock() + self._clock_lead) * 1000)

    def distrust(self) -> None:
        """Forget what was read here until now."""
        self.trust.until = 0.0
        self.trust = Trust()

    def leave(self, why: str) -> None:
        """End the connection, or the pause before the next one, which asks again where the server is."""
        self.hurry()
        if self._wire.value is not None:
            self._wire.value.close(why)

    def hurry(self) -> None:
        """End the pause before the next attempt to connect, if there is one."""
        self._is_hurried.set()

    async def drain(self) -> None:
        """Wait until the commands that were sent before are answered. Raises WireLost where the connection ends."""
        if self._wire.value is not None:
            await self._wire.value.call(*_TIME)

    async def close(self, why: str = CLOSED) -> None:
        try:
            await end_task(self._task)
        finally:
            self._wire.end(why)

    def _send(
        self, wire: Wire, command: Command, take: Callable[[Any], Value], is_tracked: bool
    ) -> asyncio.Future[Value]:
        if len(wire.pending) >= MAX_PENDING:
            return _refuse(TooManyPending(f"{MAX_PENDING} commands wait for their answers already"))
        if is_tracked and self._is_tracked:
            wire.send(_TRACK_NEXT, as_it_came).add_done_callback(self._look_at_tracking)
        return wire.send(command, take)

    def _look_at_tracking(self, done: asyncio.Future[Any]) -> None:
        """End the connection if the server refuses to track the next key. The handshake finds out what it allows."""
        if not done.cancelled() and isinstance(done.exception(), ResponseError):
            self.leave(f"the server refuses to track a key: {done.exception()}")

    @property
    def _address(self) -> str:
        if self.node is not None:
            return f"{self.node[0]}:{self.node[1]}"
        name = self._purpose.url.master_name
        return f"the master {name}" if name else "the unix socket"

    async def _keep_up(self) -> None:
        while True:
            try:
                pause = await self._live()
            except Exception as error:  # a mistake of ours must not end the link for good
                log.exception("the connection for %s to %s ended by a mistake", self._purpose.word, self._address)
                pause = self._backoff.fail(0)
                self._wire.fail(_describe(error, CONNECT_SECONDS))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._is_hurried.wait()

    async def _live(self) -> float:
        """Connect, and wait for the end of the connection. Returns the seconds to wait before the next attempt.

        The log is told of each change once, and of the end of an outage as of its beginning.
        """
        began = read_clock()
        self._is_hurried.clear()
        try:
            wire = await self._connect()
        except Exception as error:
            trouble = _describe(error, CONNECT_SECONDS)
            self._lost_at = self._lost_at or read_clock()
            if self._wire.fail(trouble):
                log.warning("no connection for %s to %s: %s", self._purpose.word, self._address, trouble)
            return self._backoff.fail(read_clock() - began)
        try:
            self._tell_connected(self._lost_at)
            trouble = await self._use(wire)
        finally:
            wire.close(CLOSED)
            self._lost_at = read_clock()
        log.warning("the connection for %s to %s ended: %s", self._purpose.word, self._address, trouble)
        return self._backoff.end(self._lost_at - began)

    def _tell_connected(self, lost_at: float | None) -> None:
        if lost_at is None:
            log.info("connected for %s to %s", self._purpose.word, self._address)
        else:
            seconds = read_clock() - lost_at
            log.warning("connected for %s to %s again, after %.1f s", self._purpose.word, self._address, seconds)
        if self._refusal is not None:
            log.warning(
                "%s does not track keys (CLIENT TRACKING), so nothing is remembered for %s: %s",
                self._address,
                self._purpose.word,
                self._refusal,
            )

    async def _connect(self) -> Wire:
        self.node = await self._find_node()
        opening = asyncio.create_task(
            open_wire(
                self._purpose.url,
                self.node,
                self._purpose.word,
                self._take_push,
                self._take_loss,
                begin=self._begin,
                first_address=self._backoff.failures,
            )
        )
        try:
            return await finish_within(opening, CONNECT_SECONDS)
        except (asyncio.CancelledError, TimeoutError):
            if not opening.cancelled() and opening.exception() is None:
                opening.result().close(CLOSED)
            raise

    async def _begin(self, wire: Wire) -> None:
        """Send what belongs to the handshake together, with the first heartbeat, and judge the answers."""
        scripts = self._purpose.scripts
        is_wanted = self._purpose.memory is not None
        tracking = [wire.send(command, as_it_came) for command in (_TRACK, _TRACK_NEXT)] if is_wanted else []
        known = [wire.send(("SCRIPT", "EXISTS", *scripts), as_it_came)] if scripts else []
        sent, beat = self._send_beat(wire)
        answers = await asyncio.gather(*tracking, *known, *beat, return_exceptions=True)
        if tracking:
            self._take_tracking(answers[:2])
        if known:
            self._load_scripts(wire, answers[len(tracking)])
        self._take_beat(wire, sent, answers[-len(beat) :])

    def _take_tracking(self, answers: Sequence[Any]) -> None:
        """Note whether the server tracks keys. Where it does not know that, or forbids it, nothing is remembered."""
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        for error in errors:
            if not str(error).startswith(("ERR ", "NOPERM ")):
                raise error
        self._refusal = str(errors[0]) if errors else None
        self._is_tracked = not errors

    def _load_scripts(self, wire: Wire, known: Any) -> None:
        """Load the scripts that the server does not know. Commands that are sent later find them there.

        A server that refuses this gets the text of each script with its first call.
        """
        if not isinstance(known, list):
            return
        for text, is_known in zip(self._purpose.scripts.values(), known, strict=True):
            if not is_known:
                wire.send(("SCRIPT", "LOAD", text), as_it_came).add_done_callback(_look_at)

    async def _use(self, wire: Wire) -> str:
        """Publish the connection and beat on it until it is lost. Returns why it was lost."""
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
            await finish_within(asyncio.create_task(self._beat(wire)), TRUSTED_SECONDS)
        except Exception as error:
            wire.close(_describe(error, TRUSTED_SECONDS))

    async def _beat(self, wire: Wire) -> None:
        sent, beat = self._send_beat(wire)
        self._take_beat(wire, sent, await asyncio.gather(*beat, return_exceptions=True))

    def _send_beat(self, wire: Wire) -> tuple[float, list[asyncio.Future[Any]]]:
        """Ask for the time and for what is checked, in one round trip."""
        command = self._check.find_command()
        questions = (_TIME,) if command is None else (_TIME, command)
        return read_clock(), [wire.send(question, as_it_came) for question in questions]

    def _take_beat(self, wire: Wire, sent: float, answers: Sequence[Any]) -> None:
        clock, *checked = answers
        if isinstance(clock, BaseException):
            raise clock
        self._note_clock(int(clock[0]) + int(clock[1]) / 1e6, sent)
        for answer in checked:
            self._check.judge(answer)
        if self._is_tracked and not wire.lost.done():
            self.trust.until = sent + TRUSTED_SECONDS

    def _note_clock(self, redis_time: float, sent: float) -> None:
        """Redis read its clock after `sent` and before now; the greatest lead makes deadlines early, not late."""
        least, most = redis_time - read_clock(), redis_time - sent
        if self._clock_lead is None:
            self._clock_lead = most
        elif least > self._clock_lead + DRIFT_SECONDS:
            self.distrust()
            self._clock_lead = most
        elif most < self._clock_lead - DRIFT_SECONDS:
            self._clock_lead = most

    def _take_push(self, push: Sequence[Any]) -> None:
        if push[0] == b"invalidate" and self._purpose.memory is not None:
            self._purpose.memory.forget(push[1])

    def _take_loss(self) -> None:
        self.distrust()
        if self._wire.value is not None and self._wire.value.lost.done():  # else it was lost before it was of any use
            self._wire.lose()


def _refuse(error: Exception) -> asyncio.Future[Any]:
    refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    refused.set_exception(error)
    return refused


def _look_at(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()


def _describe(error: Exception, limit_seconds: float) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {limit_seconds:g} s"
    return str(translate(error))
