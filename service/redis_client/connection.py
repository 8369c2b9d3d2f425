"""A connection to one Redis server, shared by all tasks. Commands are pipelined and answered in their order.

redis-py lends a connection to one command at a time. That costs a multiple of the processor time of a pipelined
command. A local cache also needs reads and invalidations in one stream, whose order shows which came first.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import random
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

import hiredis

from .deadline import ConnectionLost, NoScriptError, NotSent, RedisError, ResponseError
from .url import Node, RedisUrl

ADDRESS_PAUSE_SECONDS: Final = 0.25
"""If an address of a host name stays silent for this long, the next one is tried in parallel (RFC 8305 §5)."""

ASK_SECONDS: Final = 1.5
"""The time limit for Sentinels, or nodes of a cluster, to report where the masters are."""

ASK_PAUSE_SECONDS: Final = 0.3
"""If a Sentinel or a node stays silent for this long, the next one is asked in parallel."""

_INCOMPLETE: Final = object()

Result = TypeVar("Result")
Command = tuple[str | bytes | int | float, ...]
OnPush = Callable[[Sequence[Any]], None]


def decode_raw(answer: Any) -> Any:
    return answer


COMMANDS_AT_ONCE: Final = 16
"""The most commands that one system call sends. Batching a whole event-loop iteration delays Redis and
then stalls the loop: 64 chained refreshes had a seventh fewer answers a second."""


class Connection(asyncio.Protocol):
    """A RESP3 connection to one server.

    `on_push` gets each push message in its place among the answers. When the connection ends, `on_lost` is called
    before any other code can notice the loss. After that no more data is processed.
    """

    def __init__(self, on_push: OnPush = lambda _: None, on_lost: Callable[[], None] = lambda: None) -> None:
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        self.on_push = on_push
        self.on_lost = on_lost
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE, replyError=_make_error)
        self.pending: deque[tuple[asyncio.Future[Any], Callable[[Any], Any]]] = deque()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] | None = None

    async def call(self, *command: str | bytes | int | float) -> Any:
        return await self.send(command)

    def send(self, command: Command, decode: Callable[[Any], Result] = decode_raw) -> asyncio.Future[Result]:
        """Send a command. Returns a future of the answer, converted by `decode`.

        `decode` is called at the moment at which the answer stands first in the stream.
        """
        future = self._loop.create_future()
        if self.lost.done() or self._transport is None:
            future.set_exception(NotSent("the connection is already closed"))
            return future
        data = hiredis.pack_command(command)  # type: ignore[arg-type] # declared for one part only
        self.pending.append((future, decode))
        if self._unsent is None:
            # The first command of an event loop turn is sent at once, later ones together. Redis can begin early, and
            # most commands need no system call of their own.
            self._unsent = []
            self._transport.write(data)
            self._loop.call_soon(self._send_rest)
        else:
            self._unsent.append(data)
            if len(self._unsent) == COMMANDS_AT_ONCE:
                self._transport.write(b"".join(self._unsent))
                self._unsent.clear()
        return future

    def get_address(self) -> str:
        """Return the IP address of the server."""
        assert self._transport is not None
        return str(self._transport.get_extra_info("peername")[0])

    def close(self, why: str) -> None:
        """Close the connection at once.

        Each pending command fails with ConnectionLost, and later answers are not read.
        """
        if self.lost.done():
            return
        self.lost.set_result(why)
        self.on_lost()
        if self._transport is not None:
            self._transport.abort()
        while self.pending:
            future, _ = self.pending.popleft()
            if not future.done():
                future.set_exception(ConnectionLost(why))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport is of another class

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while not self.lost.done():
                reply = self._reader.gets()
                if reply is _INCOMPLETE:
                    return
                if isinstance(reply, hiredis.PushNotification):
                    self.on_push(reply)
                else:
                    self._settle(reply)
        except Exception as error:  # the rest of the stream can no longer be matched to commands
            self.close(f"{type(error).__name__}: {error}")

    def eof_received(self) -> None:
        """Close the connection now: `connection_lost` comes one turn of the event loop later."""
        self.close("the server closed the connection")

    def connection_lost(self, error: Exception | None) -> None:
        self.close(str(error or "the server closed the connection"))

    def _settle(self, reply: Any) -> None:
        if not self.pending:
            raise RedisError("unexpected reply: no command is pending")
        future, decode = self.pending.popleft()
        if isinstance(reply, ResponseError):
            if not future.done():
                future.set_exception(reply)
            return
        try:
            result = decode(reply)
        except Exception as error:
            if not future.done():
                future.set_exception(error)
            return
        if not future.done():
            future.set_result(result)

    def _send_rest(self) -> None:
        unsent, self._unsent = self._unsent, None
        if unsent and self._transport is not None and not self.lost.done():
            self._transport.write(b"".join(unsent))


def _make_error(text: str) -> ResponseError:
    return NoScriptError(text) if text.startswith("NOSCRIPT ") else ResponseError(text)


async def gather_answers(answers: Sequence[Awaitable[Any]]) -> list[Any]:
    """Return the answers to commands that were sent together. Raises the first error in the order of the commands."""
    results = await asyncio.gather(*answers, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


async def open_connection(
    url: RedisUrl,
    node: Node | None,
    client_name: str,
    on_push: OnPush = lambda _: None,
    on_lost: Callable[[], None] = lambda: None,
    *,
    begin: Callable[[Connection], Coroutine[Any, Any, None]] | None = None,
    same_address_as: Connection | None = None,
) -> Connection:
    """Connect to a node, and speak RESP3 in the database of the URL.

    A node of None is the unix socket of the URL. `client_name` is a word that CLIENT LIST shows. `begin` sends further
    commands of the handshake in the same round trip, and waits for their answers. All addresses of the node's name are
    tried. If another connection is given, only the address of that one is tried.

    Raises OSError or RedisError. The caller sets the time limit.
    """
    connection = await _connect(url, node, same_address_as)
    connection.on_push, connection.on_lost = on_push, on_lost
    try:
        if begin is None:
            await _greet(connection, url, client_name)
        else:
            # Both become tasks that send their commands when they start, and they start in this order.
            await asyncio.gather(_greet(connection, url, client_name), begin(connection))
    except BaseException:
        connection.close("the connection attempt was abandoned")
        raise
    return connection


async def _connect(url: RedisUrl, node: Node | None, same_address_as: Connection | None) -> Connection:
    if node is None:
        _, connection = await asyncio.get_running_loop().create_unix_connection(Connection, url.path)
        return connection
    addresses = await _resolve(node, same_address_as)
    attempts = [functools.partial(_connect_to, url, address, node) for address in addresses]
    try:
        return await get_first(attempts, pause_seconds=ADDRESS_PAUSE_SECONDS, discard=_discard)
    except NoneSucceeded as error:
        raise error.errors[0] if len(error.errors) == 1 else ConnectionError(str(error)) from error


async def _resolve(node: Node, same_address_as: Connection | None) -> list[str]:
    """Return the IP addresses of the node's name. If another connection is given, returns only that one's address.

    They are in random order, because the first one may accept connections and never answer.
    """
    with suppress(ValueError):
        ipaddress.ip_address(node[0])
        return [node[0]]  # resolving an IP address would take a thread of the event loop's pool
    if same_address_as is not None:
        return [same_address_as.get_address()]
    found = await asyncio.get_running_loop().getaddrinfo(*node, type=socket.SOCK_STREAM)
    return random.sample([str(address[0]) for *_, address in found], len(found))


async def _connect_to(url: RedisUrl, address: str, node: Node) -> Connection:
    """Connect to one address. The TLS certificate must be valid for the node's name."""
    context, name = (_make_ssl_context(), node[0]) if url.tls else (None, None)
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, address, node[1], ssl=context, server_hostname=name)
    return connection


def _discard(connection: Connection) -> None:
    connection.close("another IP address was faster")


async def _greet(connection: Connection, url: RedisUrl, client_name: str) -> None:
    """Send HELLO and SELECT. Raises OSError if the password cannot be read.

    A server that does not know HELLO repeats its arguments in the error, the password among them. They are cut off.
    """
    url = url.renew()
    credentials = ("AUTH", url.username or "default", url.password or "") if url.username or url.password else ()
    commands: list[Command] = [("HELLO", 3, *credentials, "SETNAME", f"token-{client_name}")]
    if url.db:
        commands.append(("SELECT", url.db))
    try:
        await gather_answers([connection.send(command) for command in commands])
    except ResponseError as error:
        raise ResponseError(str(error).partition(", with args")[0]) from None


@functools.cache
def _make_ssl_context() -> ssl.SSLContext:
    """Return the TLS context.

    It is made only once, since reading the certificate authorities blocks the event loop for 20 ms.
    """
    return ssl.create_default_context()


class NoneSucceeded(Exception):
    """The error if all attempts failed. `errors` holds the error of each, in the order in which they failed."""

    def __init__(self, errors: Sequence[BaseException]) -> None:
        super().__init__("; ".join(dict.fromkeys(str(error) or type(error).__name__ for error in errors)))
        self.errors = errors


async def get_first(
    attempts: Sequence[Callable[[], Coroutine[Any, Any, Result]]],
    *,
    pause_seconds: float,
    discard: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Return the result of the first attempt that succeeds, and cancel the others.

    The next attempt begins when one fails, or `pause_seconds` after the latest one began. `discard` is called with each
    result that came too late to be the first. Raises NoneSucceeded if all attempts fail. The caller sets the time limit
    for all of them.

    `asyncio.staggered` of the standard library does the same, but is not documented.
    """
    errors: list[BaseException] = []
    running: set[asyncio.Task[Result]] = set()
    is_found = False
    waiting = list(reversed(attempts))
    try:
        while waiting or running:
            if waiting:
                running.add(asyncio.create_task(waiting.pop()()))
            timeout = pause_seconds if waiting else None
            done, running = await asyncio.wait(running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            ended = [task for task in done if not task.cancelled()]
            errors += [error for task in ended if (error := task.exception())]
            if succeeded := [task for task in ended if not task.exception()]:
                is_found = True
                first = succeeded.pop()
                running.update(succeeded)
                return first.result()
        raise NoneSucceeded(errors)
    finally:
        for task in running:
            task.add_done_callback(functools.partial(_settle_late, discard))
            task.cancel()
        if running and not is_found:
            await asyncio.wait(running)


def _settle_late(discard: Callable[[Result], None], late: asyncio.Task[Result]) -> None:
    """Discard the result of a task that is no longer needed. Its error is read, so that asyncio does not warn of it."""
    if not late.cancelled() and late.exception() is None:
        discard(late.result())
