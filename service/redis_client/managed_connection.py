"""The way to one server: kept up, its clock known, and its word about our memory never older than a second.

A link beats four times a second: it asks for the time on the very connection that invalidations come by. Answers and
invalidations keep their order, so an answered beat proves that all changes from before it have arrived here. What was
remembered from the link may be believed for `TRUSTED_SECONDS` after the last beat that was answered was sent; a frozen
server, a cut network or an event loop that stood still cannot stretch that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any, Final, NamedTuple, TypeVar

from .availability import Availability
from .backoff import Backoff
from .clock import read_clock
from .connection import (
    Command,
    Connection,
    decode_raw,
    gather_answers,
    open_connection,
)
from .deadline import CONNECT_SECONDS, translate
from .errors import ResponseError
from .options import ConnectionOptions
from .tasks import UNREAD_REPLY_SECONDS, end_task, finish_within
from .url import Node

HEARTBEAT_SECONDS: Final = 0.25
TRUSTED_SECONDS: Final = 1.0

MAX_SILENCE_SECONDS: Final = HEARTBEAT_SECONDS + TRUSTED_SECONDS + UNREAD_REPLY_SECONDS
"""After it a link whose server says nothing has ended, and so have all calls that waited for an answer."""

MAX_PENDING: Final = 10_000
"""Requests on one connection that wait for their answers. The heartbeat bounds how long they wait."""

DRIFT_SECONDS: Final = 0.1
"""How far Redis's clock and ours may come apart before what was reckoned with the old difference is forgotten."""

CLOSED: Final = "the store is closed"

log = logging.getLogger("service.store")

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


class ManagedConnection:
    """Keeps up the connection to one server.

    `get_node` says where the server is, before each attempt; None: the unix socket of the URL. `trust` belongs to what
    is read here now; another connection has another one.
    """

    def __init__(
        self, options: ConnectionOptions, get_node: Callable[[], Awaitable[Node | None]], check: Check = NO_CHECK
    ) -> None:
        self.trust = Trust()
        self.node: Node | None = None
        self._clock_lead: float | None = None
        self._options = options
        self._get_node = get_node
        self._check = check
        self._is_tracked = False
        self._refusal: str | None = None
        self._backoff = Backoff()
        self._lost_at: float | None = None
        self._is_pause_skipped = asyncio.Event()
        self._connection: Availability[Connection] = Availability()
        # In a context of its own: the request that happens to come first is not meant.
        self._task = asyncio.create_task(self._run(), context=Context())

    @property
    def is_up(self) -> bool:
        return self._connection.value is not None

    def send_if_connected(
        self, command: Command, decode: Callable[[Any], Value], *, is_tracked: bool
    ) -> asyncio.Future[Value]:
        """Send a command on a link that is up. With `is_tracked` Redis tells when the key of the command changes."""
        assert self._connection.value is not None
        return self._send(self._connection.value, command, decode, is_tracked)

    async def send(self, command: Command, decode: Callable[[Any], Value], *, is_tracked: bool) -> Value:
        """Raises ConnectionLost where the connection ends meanwhile, StoreUnavailable where there is none to be had."""
        return await self._send(await self.get_connection(), command, decode, is_tracked)

    async def call(self, *command: str) -> Any:
        """Send a command without a key. Raises what `send` raises."""
        return await (await self.get_connection()).call(*command)

    async def get_connection(self) -> Connection:
        """Return the connection of this moment, for commands that belong together. Raises what `send` raises."""
        return self._connection.value or await self._connection.get()

    async def send_asking(self, command: Command) -> Any:
        """Send a command for a key that is on its way to this node."""
        connection = await self.get_connection()
        _, answer = await gather_answers(
            [connection.send(("ASKING",), decode_raw), connection.send(command, decode_raw)]
        )
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

    def disconnect(self, why: str) -> None:
        """End the connection, or the pause before the next one, which asks again where the server is."""
        self.skip_pause()
        if self._connection.value is not None:
            self._connection.value.close(why)

    def skip_pause(self) -> None:
        """End the pause before the next attempt to connect, if there is one."""
        self._is_pause_skipped.set()

    async def drain(self) -> None:
        """Wait until the commands that were sent before are answered. Raises ConnectionLost where the connection ends."""
        if self._connection.value is not None:
            await self._connection.value.call(*_TIME)

    async def close(self, why: str = CLOSED) -> None:
        try:
            await end_task(self._task)
        finally:
            self._connection.end(why)

    def _send(
        self, connection: Connection, command: Command, decode: Callable[[Any], Value], is_tracked: bool
    ) -> asyncio.Future[Value]:
        if len(connection.pending) >= MAX_PENDING:
            return _refuse(TooManyPending(f"{MAX_PENDING} commands wait for their answers already"))
        if is_tracked and self._is_tracked:
            connection.send(_TRACK_NEXT, decode_raw).add_done_callback(self._end_if_tracking_failed)
        return connection.send(command, decode)

    def _end_if_tracking_failed(self, done: asyncio.Future[Any]) -> None:
        """End the connection if the server refuses to track the next key. The handshake finds out what it allows."""
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
            except Exception as error:  # a mistake of ours must not end the link for good
                log.exception("the connection for %s to %s ended by a mistake", self._options.name, self._address)
                pause = self._backoff.fail(0)
                self._connection.fail(_describe(error, CONNECT_SECONDS))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._is_pause_skipped.wait()

    async def _run_once(self) -> float:
        """Connect, and wait for the end of the connection. Returns the seconds to wait before the next attempt.

        The log is told of each change once, and of the end of an outage as of its beginning.
        """
        began = read_clock()
        self._is_pause_skipped.clear()
        try:
            connection = await self._connect()
        except Exception as error:
            failure = _describe(error, CONNECT_SECONDS)
            self._lost_at = self._lost_at or read_clock()
            if self._connection.fail(failure):
                log.warning("no connection for %s to %s: %s", self._options.name, self._address, failure)
            return self._backoff.fail(read_clock() - began)
        try:
            self._log_connected(self._lost_at)
            failure = await self._serve(connection)
        finally:
            connection.close(CLOSED)
            self._lost_at = read_clock()
        log.warning("the connection for %s to %s ended: %s", self._options.name, self._address, failure)
        return self._backoff.end(self._lost_at - began)

    def _log_connected(self, lost_at: float | None) -> None:
        if lost_at is None:
            log.info("connected for %s to %s", self._options.name, self._address)
        else:
            seconds = read_clock() - lost_at
            log.warning("connected for %s to %s again, after %.1f s", self._options.name, self._address, seconds)
        if self._refusal is not None:
            log.warning(
                "%s does not track keys (CLIENT TRACKING), so nothing is remembered for %s: %s",
                self._address,
                self._options.name,
                self._refusal,
            )

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
                first_address=self._backoff.failures,
            )
        )
        try:
            return await finish_within(opening, CONNECT_SECONDS)
        except (asyncio.CancelledError, TimeoutError):
            if not opening.cancelled() and opening.exception() is None:
                opening.result().close(CLOSED)
            raise

    async def _begin(self, connection: Connection) -> None:
        """Send what belongs to the handshake together, with the first heartbeat, and judge the answers."""
        scripts = self._options.scripts
        is_wanted = self._options.listener is not None
        tracking = [connection.send(command, decode_raw) for command in (_TRACK, _TRACK_NEXT)] if is_wanted else []
        known = [connection.send(("SCRIPT", "EXISTS", *scripts), decode_raw)] if scripts else []
        sent, heartbeat = self._send_heartbeat(connection)
        answers = await asyncio.gather(*tracking, *known, *heartbeat, return_exceptions=True)
        if tracking:
            self._note_tracking(answers[:2])
        if known:
            self._load_scripts(connection, answers[len(tracking)])
        self._handle_heartbeat(connection, sent, answers[-len(heartbeat) :])

    def _note_tracking(self, answers: Sequence[Any]) -> None:
        """Note whether the server tracks keys. Where it does not know that, or forbids it, nothing is remembered."""
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        for error in errors:
            if not str(error).startswith(("ERR ", "NOPERM ")):
                raise error
        self._refusal = str(errors[0]) if errors else None
        self._is_tracked = not errors

    def _load_scripts(self, connection: Connection, known: Any) -> None:
        """Load the scripts that the server does not know. Commands that are sent later find them there.

        A server that refuses this gets the text of each script with its first call.
        """
        if not isinstance(known, list):
            return
        for text, is_known in zip(self._options.scripts.values(), known, strict=True):
            if not is_known:
                connection.send(("SCRIPT", "LOAD", text), decode_raw).add_done_callback(_consume_exception)

    async def _serve(self, connection: Connection) -> str:
        """Publish the connection and beat on it until it is lost. Returns why it was lost."""
        if not connection.lost.done():
            self._connection.set(connection)
        heartbeats: set[asyncio.Task[None]] = set()
        while not connection.lost.done():
            await asyncio.wait({connection.lost}, timeout=HEARTBEAT_SECONDS)
            # Whether or not the last one was answered: what is sent after it must not wait for two time limits.
            heartbeats.add(heartbeat := asyncio.create_task(self._run_heartbeat_or_close(connection)))
            heartbeat.add_done_callback(heartbeats.discard)
        return connection.lost.result()

    async def _run_heartbeat_or_close(self, connection: Connection) -> None:
        try:
            await finish_within(asyncio.create_task(self._run_heartbeat(connection)), TRUSTED_SECONDS)
        except Exception as error:
            connection.close(_describe(error, TRUSTED_SECONDS))

    async def _run_heartbeat(self, connection: Connection) -> None:
        sent, heartbeat = self._send_heartbeat(connection)
        self._handle_heartbeat(connection, sent, await asyncio.gather(*heartbeat, return_exceptions=True))

    def _send_heartbeat(self, connection: Connection) -> tuple[float, list[asyncio.Future[Any]]]:
        """Ask for the time and for what is checked, in one round trip."""
        command = self._check.find_command()
        questions = (_TIME,) if command is None else (_TIME, command)
        return read_clock(), [connection.send(question, decode_raw) for question in questions]

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
        """Redis read its clock after `sent` and before now; the greatest lead makes deadlines early, not late."""
        least, most = redis_time - read_clock(), redis_time - sent
        if self._clock_lead is None:
            self._clock_lead = most
        elif least > self._clock_lead + DRIFT_SECONDS:
            self.distrust()
            self._clock_lead = most
        elif most < self._clock_lead - DRIFT_SECONDS:
            self._clock_lead = most

    def _handle_push(self, push: Sequence[Any]) -> None:
        if push[0] == b"invalidate" and self._options.listener is not None:
            self._options.listener.invalidate(push[1])

    def _handle_loss(self) -> None:
        self.distrust()
        if (
            self._connection.value is not None and self._connection.value.lost.done()
        ):  # else it was lost before it was of any use
            self._connection.lose()


def _refuse(error: Exception) -> asyncio.Future[Any]:
    refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    refused.set_exception(error)
    return refused


def _consume_exception(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()


def _describe(error: Exception, limit_seconds: float) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {limit_seconds:g} s"
    return str(translate(error))
