"""A connection to one server that reconnects, and limits how long answers that were read on it may be cached.

A heartbeat runs twice a second. It asks for the time, and whether the server is still a master. Answers and
invalidations keep their order, so an answered heartbeat proves that all earlier changes have arrived here. Answers may
be used from a cache for `TRUSTED_SECONDS` after the last answered heartbeat was sent. A frozen server, a cut network or
a blocked event loop cannot extend that. Answers to other commands do not extend it either, because a demoted master
still answers commands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any, Final, NamedTuple, TypeVar

from .availability import Availability, Backoff
from .connection import Command, Connection, gather_answers, open_connection
from .deadline import (
    CONNECT_SECONDS,
    UNREAD_REPLY_SECONDS,
    ResponseError,
    end_task,
    finish_within,
    read_clock,
    translate,
)
from .tracked_cache import Trust
from .url import Node, RedisUrl

HEARTBEAT_SECONDS: Final = 0.5

TRUSTED_SECONDS: Final = 1.0

MAX_SILENCE_SECONDS: Final = HEARTBEAT_SECONDS + TRUSTED_SECONDS + UNREAD_REPLY_SECONDS
"""The connection to a silent server is closed within this time, and its pending calls fail."""

CLOSED: Final = "the Redis client is closed"

STABLE_SECONDS: Final = 1.0
"""A connection that lasted this long is followed by no pause. The pause after a shorter one ends within this time."""

DRIFT_SECONDS: Final = 0.1
"""If Redis's clock and ours drift apart by more than this, their difference is noted anew."""

WATCH_SECONDS: Final = 1.0
"""The interval at which Sentinels or cluster nodes are asked where the masters are."""


GetNode = Callable[[], Awaitable[Node | None]]
Invalidate = Callable[[Sequence[bytes] | None], None]
"""A function of a cache that forgets keys that changed. None means that any key may have changed."""

Value = TypeVar("Value")

log: Final = logging.getLogger(__package__)


class ConnectionOptions(NamedTuple):
    """The options of a group of connections. `name` appears in the log and in CLIENT LIST.

    If there is `invalidate`, Redis tracks the keys that are read for it. Each heartbeat to a cluster node reads one of
    `probe_keys` that lies there. The probe keys should spread over all slots, and none of them needs to exist. Only
    tests change the limits in seconds.
    """

    url: RedisUrl
    name: str
    invalidate: Invalidate | None = None
    probe_keys: Sequence[str] = ()
    drift_seconds: float = DRIFT_SECONDS
    stable_seconds: float = STABLE_SECONDS
    watch_seconds: float = WATCH_SECONDS


class Check(NamedTuple):
    """The command that each heartbeat sends, and the judge of its answer.

    `find_command` returns the command, or None to send TIME only. `judge` gets the answer or the error. It raises an
    error to end the connection.
    """

    find_command: Callable[[], Command | None]
    judge: Callable[[Any], None]


_TIME: Final = ("TIME",)
_TRACK: Final = ("CLIENT", "TRACKING", "ON", "OPTIN")
_TRACK_NEXT: Final = ("CLIENT", "CACHING", "YES")
"""CACHING applies to the next command only: Redis tracks the key of that command."""


class ManagedConnection:
    """A connection to one server that reconnects and sends heartbeats.

    `get_node` is called before each attempt and returns the server's address. None means the unix socket of the URL.
    `trust` applies to answers that are read now. It is replaced when the connection ends or is distrusted.
    """

    def __init__(self, options: ConnectionOptions, get_node: GetNode, check: Check) -> None:
        self.trust = Trust()
        self.node: Node | None = None
        self._clock_lead: float | None = None
        self._options = options
        self._get_node = get_node
        self._check = check
        self._is_tracked = False
        self._backoff = Backoff(stable_seconds=options.stable_seconds)
        self._was_lost = False
        self._hurried = asyncio.Event()
        self._connection: Availability[Connection] = Availability()
        # An empty context, so that the task does not inherit the budget of the request that created it.
        self._task = asyncio.create_task(self._run(), context=Context())

    @property
    def is_up(self) -> bool:
        return self._connection.value is not None

    def send_if_connected(
        self, command: Command, decode: Callable[[Any], Value], *, is_tracked: bool
    ) -> asyncio.Future[Value]:
        """Send a command on a connection that is up.

        With `is_tracked` Redis sends an invalidation when the key of the command changes.
        """
        connection = self._connection.value
        assert connection is not None
        if is_tracked and self._is_tracked:
            connection.send(_TRACK_NEXT).add_done_callback(self._end_if_tracking_failed)
        return connection.send(command, decode)

    async def send(self, command: Command, decode: Callable[[Any], Value], *, is_tracked: bool) -> Value:
        """Send a command, waiting for a connection. With `is_tracked` Redis sends an invalidation when its key changes.

        Raises ConnectionLost if the connection ends before the answer, and StoreUnavailable if there is no connection.
        """
        await self.get_connection()  # no other task runs before the next line
        return await self.send_if_connected(command, decode, is_tracked=is_tracked)

    async def get_connection(self) -> Connection:
        """Return the current connection, for commands that must run on the same one.

        Raises ConnectionLost or StoreUnavailable as `send` does.
        """
        return self._connection.value or await self._connection.get()

    async def send_asking(self, command: Command) -> Any:
        """Send a command for a key whose slot is moving to this node (ASKING)."""
        connection = await self.get_connection()
        _, answer = await gather_answers([connection.send(("ASKING",)), connection.send(command)])
        return answer

    def deadline(self, time_ms: float) -> float:
        """Return the time by `read_clock` at which Redis time is `time_ms`, or slightly earlier.

        There must have been an answered heartbeat.
        """
        assert self._clock_lead is not None
        return time_ms / 1000 - self._clock_lead

    def now_ms(self) -> int | None:
        """Return Redis time in ms, computed from the heartbeats, or None before the first answered one."""
        return None if self._clock_lead is None else int((read_clock() + self._clock_lead) * 1000)

    def distrust(self) -> None:
        """Drop the trust in all answers that were read on this connection until now."""
        distrusted, self.trust = self.trust, Trust()
        distrusted.end()

    def disconnect(self, why: str) -> None:
        """Close the connection, or end the pause before the next attempt. It looks up again where the server is."""
        self._hurried.set()
        if self._connection.value is not None:
            self._connection.value.close(why)

    async def close(self, why: str = CLOSED) -> None:
        try:
            await end_task(self._task)
        finally:
            self._connection.end(why)

    def _end_if_tracking_failed(self, done: asyncio.Future[Any]) -> None:
        """Close the connection if the server refuses to track the next key.

        The handshake of the next connection finds out whether it tracks keys.
        """
        if not done.cancelled() and isinstance(done.exception(), ResponseError):
            self.disconnect(f"the server refuses to track a key: {done.exception()}")

    @property
    def _address(self) -> str:
        if self.node is not None:
            return f"{self.node[0]}:{self.node[1]}"
        name = self._options.url.master_name
        return f"the master {name}" if name else "the unix socket"

    async def _run(self) -> None:
        while True:
            try:
                pause = await self._run_once()
            except Exception as error:  # a mistake in our code must not stop reconnecting
                log.exception("the connection for %s to %s failed unexpectedly", self._options.name, self._address)
                pause = self._backoff.fail(0)
                self._connection.fail(_describe(error, CONNECT_SECONDS))
            self._hurried.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurried.wait(), pause)

    async def _run_once(self) -> float:
        """Connect, and wait for the end of the connection. Returns the seconds to wait before the next attempt.

        Each change of state is logged once. A loss and a recovery are both logged at WARNING.
        """
        began = read_clock()
        try:
            connection = await self._connect()
        except Exception as error:
            failure = _describe(error, CONNECT_SECONDS)
            self._was_lost = True
            if self._connection.fail(failure):
                log.warning("cannot connect for %s to %s: %s", self._options.name, self._address, failure)
            return self._backoff.fail(read_clock() - began)
        try:
            level = logging.WARNING if self._was_lost else logging.DEBUG
            log.log(level, "connected for %s to %s", self._options.name, self._address)
            failure = await self._serve(connection)
        finally:
            connection.close(CLOSED)
            self._was_lost = True
        log.warning("lost the connection for %s to %s: %s", self._options.name, self._address, failure)
        return self._backoff.end(read_clock() - began)

    async def _connect(self) -> Connection:
        self.node = await self._get_node()
        opening = asyncio.create_task(
            open_connection(
                self._options.url,
                self.node,
                self._options.name,
                self._handle_push,
                self._handle_loss,
                begin=self._begin,
            )
        )
        try:
            return await finish_within(opening, CONNECT_SECONDS)
        except (asyncio.CancelledError, TimeoutError):
            if not opening.cancelled() and opening.exception() is None:
                opening.result().close(CLOSED)
            raise

    async def _begin(self, connection: Connection) -> None:
        """Send the additional commands of the handshake and the first heartbeat together, and judge the answers."""
        commands = (_TRACK, _TRACK_NEXT) if self._options.invalidate is not None else ()
        tracking: list[asyncio.Future[Any]] = [connection.send(command) for command in commands]
        sent, heartbeat = read_clock(), self._send_heartbeat(connection)
        answers = await asyncio.gather(*tracking, *heartbeat, return_exceptions=True)
        if tracking:
            self._note_tracking(answers[:2])
        self._handle_heartbeat(connection, sent, answers[len(tracking) :])

    def _note_tracking(self, answers: Sequence[Any]) -> None:
        """Note whether the server tracks keys.

        If the server does not know tracking or forbids it, its answers are never used from a cache.
        """
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        for error in errors:
            if not str(error).startswith(("ERR ", "NOPERM ")):
                raise error
            log.warning("%s does not support CLIENT TRACKING, so nothing is cached: %s", self._address, error)
        self._is_tracked = not errors

    async def _serve(self, connection: Connection) -> str:
        """Publish the connection and send heartbeats until it is lost. Returns the reason for the loss."""
        if not connection.lost.done():
            self._connection.set(connection)
        heartbeats: set[asyncio.Task[None]] = set()
        while not connection.lost.done():
            await asyncio.wait({connection.lost}, timeout=HEARTBEAT_SECONDS)
            # A heartbeat is sent even if the last one is not answered yet. Otherwise a command could wait for two time
            # limits.
            heartbeat = asyncio.create_task(self._run_heartbeat(connection))
            heartbeats.add(heartbeat)
            heartbeat.add_done_callback(heartbeats.discard)
        return connection.lost.result()

    async def _run_heartbeat(self, connection: Connection) -> None:
        """Send a heartbeat and wait for its answer. Closes the connection if the answer is bad or late."""
        sent, heartbeat = read_clock(), self._send_heartbeat(connection)
        try:
            answers = await finish_within(asyncio.gather(*heartbeat, return_exceptions=True), TRUSTED_SECONDS)
            self._handle_heartbeat(connection, sent, answers)
        except Exception as error:
            connection.close(_describe(error, TRUSTED_SECONDS))

    def _send_heartbeat(self, connection: Connection) -> list[asyncio.Future[Any]]:
        """Send TIME and the command of the check in one round trip."""
        check = self._check.find_command()
        questions = (_TIME,) if check is None else (_TIME, check)
        return [connection.send(each) for each in questions]

    def _handle_heartbeat(self, connection: Connection, sent: float, answers: Sequence[Any]) -> None:
        clock, *checked = answers
        if isinstance(clock, BaseException):
            raise clock
        self._note_clock(int(clock[0]) + int(clock[1]) / 1e6, sent)
        for answer in checked:
            self._check.judge(answer)
        if self._is_tracked and not connection.lost.done():
            self.trust.until = sent + TRUSTED_SECONDS

    def _note_clock(self, redis_time: float, sent: float) -> None:
        """Note how far Redis's clock is ahead of ours. `redis_time` was read after `sent` and before now.

        The greatest possible lead is noted, which makes deadlines early, not late. If the real lead has grown by more
        than the limit of drift, deadlines computed before would be late, so earlier answers are distrusted.
        """
        drift_seconds = self._options.drift_seconds
        least, most = redis_time - read_clock(), redis_time - sent
        if self._clock_lead is None:
            self._clock_lead = most
        elif least > self._clock_lead + drift_seconds:
            self.distrust()
            self._clock_lead = most
        elif most < self._clock_lead - drift_seconds:
            self._clock_lead = most

    def _handle_push(self, push: Sequence[Any]) -> None:
        if push[0] == b"invalidate" and self._options.invalidate is not None:
            self._options.invalidate(push[1])

    def _handle_loss(self) -> None:
        self.distrust()
        # A connection that is lost before it is published leaves the availability as it is.
        if self._connection.value is not None and self._connection.value.lost.done():
            self._connection.lose()


def _describe(error: Exception, limit_seconds: float) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no response within {limit_seconds:g} s"
    return str(translate(error))
