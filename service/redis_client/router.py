"""Commands to the masters that serve their keys: one server, the one that Sentinels name, or those of a cluster.

A worker has one connection to each master, shared by all its requests, which costs a fraction of what it costs to lend
connections out. What is read may be remembered until Redis says that it changed: reads and invalidations come by one
connection, and `decode` is called at the answer's place in that stream, so nothing old is remembered after the news that
it is old.

A read whose connection ended is sent once more. A command that changes something is not: nobody knows whether it was
carried out, and our own second run of a script must never be taken for a replay.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeVar

from .connection import (
    Command,
    decode_raw,
)
from .deadline import StoreUnavailable, charge, remaining_seconds, translate, within_deadline
from .errors import ConnectionLost, NotSent, ResponseError
from .managed_connection import MAX_SILENCE_SECONDS, ManagedConnection
from .options import ConnectionOptions
from .slots import SlotWait, is_refused_for_now
from .topology import TOPOLOGIES, Topology, is_redirection

MAX_ATTEMPTS: Final = 5

Value = TypeVar("Value")
Decoder = Callable[[ManagedConnection | None, Any], Value]
"""What becomes of the answer that this link gave; without a link it must not be remembered."""


def decode_raw_from(master: ManagedConnection | None, answer: Any) -> Any:
    return answer


class Router:
    """Make it in the event loop that uses it."""

    def __init__(self, options: ConnectionOptions, *, on_moving_slot: Callable[[], None] = lambda: None) -> None:
        self._on_moving_slot = on_moving_slot
        self.topology: Topology = TOPOLOGIES[options.url.kind](options)

    async def ask(
        self,
        key: str,
        command: Command,
        decode: Decoder[Value] = decode_raw_from,
        *,
        is_read: bool = False,
        is_tracked: bool = False,
        follows_ask: bool = True,
    ) -> Value:
        """What `decode` makes of the answer; raises StoreUnavailable where none comes in time, or Redis cannot serve.

        Only what `is_tracked` may be remembered; it costs Redis memory for as long as the key lives. `follows_ask`:
        while its slot moves the command may run on the node that the key goes to.
        """
        started = time.monotonic()
        refusal: BaseException | None = None
        master = self.topology.find_connected(key)
        if master is not None and remaining_seconds() > MAX_SILENCE_SECONDS:
            # A time limit for each call would cost more than the call: the link's beat ends what takes too long.
            try:
                answer = await master.send_if_connected(
                    command, functools.partial(decode, master), is_tracked=is_tracked
                )
            except (ConnectionLost, ResponseError) as error:
                if is_refused_for_now(error, follows_ask=follows_ask):
                    refusal = error
                elif not _may_be_sent_again(error, is_read):
                    charge(started)
                    raise translate(error) from error
            else:
                charge(started)
                return answer
        work = self._ask(key, command, decode, is_read, is_tracked, follows_ask, started, refusal)
        return await within_deadline(work, started=started)

    async def ask_many(self, commands: Sequence[tuple[str, Command]], *, is_read: bool) -> list[Any]:
        """The answers to commands with their keys, all sent at once."""
        return await within_deadline(self._ask_many(commands, is_read))

    async def list_masters(self) -> Collection[ManagedConnection]:
        """The links to all masters; raises StoreUnavailable where those are not known."""
        return await within_deadline(self.topology.list_masters())

    def now_ms(self) -> int:
        """The time by Redis's clock; raises StoreUnavailable where it was never heard."""
        for master in self.topology.list_connections():
            if (now_ms := master.now_ms()) is not None:
                return now_ms
        raise StoreUnavailable("Redis has not told the time yet")

    async def close(self) -> None:
        await self.topology.close()

    async def _ask(
        self,
        key: str,
        command: Command,
        decode: Decoder[Value],
        is_read: bool,
        is_tracked: bool,
        follows_ask: bool,
        started: float,
        refusal: BaseException | None,
    ) -> Value:
        """`refusal`: the answer of a node whose slot is moving, if the command was sent before, at `started`."""
        failure: Exception | None = None
        attempts, wait, target = 0, SlotWait(self._on_moving_slot, started), None
        if refusal is not None:
            await wait.pause(refusal)
        while attempts < MAX_ATTEMPTS:
            master = target or await self.topology.find(key)
            try:
                if target is not None:
                    return decode(None, await target.send_asking(command))
                return await master.send(command, functools.partial(decode, master), is_tracked=is_tracked)
            except (ConnectionLost, ResponseError) as error:
                if is_refused_for_now(error, follows_ask=follows_ask):
                    await wait.pause(error)
                    continue
                if not _may_be_sent_again(error, is_read):
                    raise
                attempts, failure = attempts + 1, error
                target = await self.topology.handle_redirection(str(error), master) if is_redirection(error) else None
        raise StoreUnavailable(f"{MAX_ATTEMPTS} attempts, and none found the node of this key: {failure}")

    async def _ask_many(self, commands: Sequence[tuple[str, Command]], is_read: bool) -> list[Any]:
        started = time.monotonic()
        under_way = [self._send_if_connected(key, command) for key, command in commands]
        answers = await asyncio.gather(*under_way, return_exceptions=True)
        for number, (key, command) in enumerate(commands):
            failure = answers[number]
            if isinstance(failure, BaseException):
                refusal = failure if is_refused_for_now(failure, follows_ask=True) else None
                if refusal is None and not _may_be_sent_again(failure, is_read):
                    raise failure
                answers[number] = await self._ask(key, command, decode_raw_from, is_read, False, True, started, refusal)
        return answers

    def _send_if_connected(self, key: str, command: Command) -> asyncio.Future[Any]:
        master = self.topology.find_connected(key)
        if master is not None:
            return master.send_if_connected(command, decode_raw, is_tracked=False)
        nowhere: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        nowhere.set_exception(NotSent("no connection to the node of this key"))
        return nowhere


def _may_be_sent_again(error: BaseException, is_read: bool) -> bool:
    """Where it was not carried out, or where it does not matter whether it was."""
    return isinstance(error, NotSent) or (is_read and isinstance(error, ConnectionLost)) or is_redirection(error)
