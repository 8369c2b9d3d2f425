"""The client for commands and scripts on a single Redis server, a Sentinel setup or a Cluster."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from .connection import Command, decode_raw, gather_answers
from .deadline import CallObserver, NoScriptError, StoreUnavailable, watch_call, within_deadline
from .durable_writes import ConfirmationPool, DurableWork
from .managed_connection import ConnectionOptions
from .router import Router
from .script import OWN_SCRIPTS, Argument, Run, Script
from .slots import NodeSlots, get_slot, list_unsettled, parse_own_slots
from .topology import Master
from .url import MEMORY, Durability, RedisUrl

log: Final = logging.getLogger(__package__)

SCANNED_AT_ONCE: Final = 1000
MAX_LOOKS: Final = 60
SCAN_RETRY_DELAY_SECONDS: Final = 0.5
"""`scan_whole` pauses this long up to MAX_LOOKS times while slots move: 30 s in total. Most single slots need less."""
FENCE_LIFETIME_MS: Final = 86_400_000

_LEAVE_FENCE: Final = OWN_SCRIPTS["leave_fence"]

Result = TypeVar("Result")


class DurableScripts(NamedTuple):
    """The functions for use within a `durable` block.

    `leave_fence` is for a block that found nothing to change. It writes a key, so that confirming this write also
    confirms the state that was found.
    """

    run: Run
    leave_fence: Callable[[], Awaitable[None]]


class RedisClient:
    """The client for all masters behind one REDIS_URL.

    It connects at the first call, in the event loop of that call, and must be closed there. A command goes to the
    master that serves the key which is its second word. All calls raise StoreUnavailable for any outage.

    Caches that Redis invalidates may share `router`, and with it the connections.

    A subclass sets the names of keys. `fence_key` returns the name of the key of a shard that `leave_fence` writes.
    `probe_keys` are for the heartbeats to cluster nodes.

    `watch` is called after each call. `on_moving_slot` is called each time a command must be sent again because its
    slot is moving. `scan_whole` looks at all keys up to `max_looks` times. `clock_offset_ms` moves the clock of every
    script, which has it as a last argument, and is for tests only.
    """

    fence_key: ClassVar[staticmethod[[str], str]]
    probe_keys: ClassVar[Sequence[str]]

    def __init__(
        self,
        url: RedisUrl,
        *,
        durability: Durability = MEMORY,
        clock_offset_ms: Callable[[], int] = int,
        watch: CallObserver = lambda *_: None,
        on_moving_slot: Callable[[], None] = lambda: None,
    ) -> None:
        self.max_looks = MAX_LOOKS
        self.scan_retry_delay_seconds = SCAN_RETRY_DELAY_SECONDS
        self._url = url
        self._durability = durability
        self._watch = watch
        self._timed = functools.partial(watch_call, watch)
        self.router = Router(ConnectionOptions(url, "reads", probe_keys=self.probe_keys), on_moving_slot=on_moving_slot)
        self._pool = ConfirmationPool(url, durability)
        self.clock_offset_ms = clock_offset_ms

    async def read(self, *command: str | int) -> Any:
        """Send a command that changes nothing. It is sent again if its connection is lost."""
        return await self._timed("read", self.router.ask(str(command[1]), command, is_read=True))

    async def read_clock_ms(self) -> int:
        """Return Redis time in ms since 1970.

        A decision that is part of a change reads the time in its script instead.
        """
        masters = await self.list_masters()
        if not masters:
            raise StoreUnavailable("CLUSTERDOWN: no node serves any slot")
        seconds, microseconds = await self._ask_master(next(iter(masters)), "TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000 + self.clock_offset_ms()

    async def write(self, *command: str | bytes | int) -> Any:
        return await self._timed("write", self.router.ask(str(command[1]), command, is_read=False))

    async def run(self, script: Script, **values: Argument) -> list[str | int]:
        """Run a script with the keys and arguments that its header names.

        Returns the script's verdict: a word, then the values that belong to it, as text or integers.
        """
        return await self._run(self.router.ask, script, *script.bind(values))

    @contextlib.asynccontextmanager
    async def durable(self, shard: str) -> AsyncIterator[DurableScripts]:
        """Provide functions for scripts of one shard.

        At the end of the block their changes are as durable as configured.

        The end of the block raises StoreUnavailable if the changes are not confirmed in time, although they are made.
        """
        if self._durability == MEMORY:
            yield DurableScripts(self.run, _leave_nothing)
            return
        fence_key = self.fence_key(shard)
        work = DurableWork(self._pool, self.router)

        async def run(script: Script, **values: Argument) -> list[str | int]:
            return await self._run(work.ask, script, *script.bind(values))

        async def leave_fence() -> None:
            await run(_LEAVE_FENCE, fence_key=fence_key, lifetime_ms=FENCE_LIFETIME_MS)

        try:
            yield DurableScripts(run, leave_fence)
            await self._timed("confirm", within_deadline(work.confirm()))
        finally:
            work.end()

    async def read_many(self, commands: Sequence[Command], master: Master | None = None) -> list[Any]:
        """Send read-only commands at once, each to the master of its key, or all to `master`. Returns the answers."""
        if master is None:
            return await self._timed("read_many", self.router.ask_many(commands, is_read=True))
        work = gather_answers([master.reads.send(command, decode_raw, is_tracked=False) for command in commands])
        return await self._timed("read_many", within_deadline(work))

    async def write_many(self, commands: Sequence[Command]) -> list[Any]:
        """Send changing commands at once, each to the master of its key, not as a transaction. Returns the answers."""
        return await self._timed("write_many", self.router.ask_many(commands, is_read=False))

    async def scan(self, pattern: str) -> AsyncIterator[list[str]]:
        """Yield batches of the matching keys of every master.

        A key that exists throughout is seen at least once, unless its slot moves; see `scan_whole`.
        """
        for master in await self.list_masters():
            # The cursor is valid on this connection only: a new one may lead to another server.
            connection = await within_deadline(master.reads.get_connection())
            cursor = "0"
            while True:
                command = ("SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED_AT_ONCE)
                position, keys = await self._timed("scan", within_deadline(connection.call(*command)))
                yield [key.decode() for key in keys]
                cursor = position.decode()
                if cursor == "0":
                    break

    async def scan_whole(self, pattern: str) -> AsyncIterator[list[str]]:
        """Yield batches of the matching keys. Slots that moved during a scan are scanned again until they are stable.

        A key that exists throughout is seen, even if it moves to another master. It may come several times. Raises
        StoreUnavailable if slots keep moving for too long.
        """
        wanted: set[int] | None = None
        for _ in range(self.max_looks):
            before = await self.list_slots()
            async for keys in self.scan(pattern):
                yield [key for key in keys if wanted is None or get_slot(key) in wanted]
            unsettled = list_unsettled(before, await self.list_slots())
            wanted = unsettled if wanted is None else wanted & unsettled
            if not wanted:
                return
            await asyncio.sleep(self.scan_retry_delay_seconds)
        raise StoreUnavailable(
            f"cluster slots kept moving during {self.max_looks} scans; finish the resharding, "
            "or repair the interrupted migration (see doctor), then try again"
        )

    async def list_slots(self) -> list[NodeSlots]:
        """Return the owned and the moving slots of each master of a cluster. The list is empty without a cluster."""
        if self._url.kind != "cluster":
            return []
        masters = await self.list_masters()
        return [parse_own_slots(await self._ask_master(master, "CLUSTER", "NODES")) for master in masters]

    async def list_masters(self) -> Collection[Master]:
        return await self.router.list_masters()

    async def count_keys(self, master: Master) -> int:
        return int(await self._ask_master(master, "DBSIZE"))

    async def measure_key(self, key: str) -> int | None:
        """Return the size of the key in Redis in bytes, or None if it does not exist."""
        answer: int | None = await self._timed(
            "read", self.router.ask(key, ("MEMORY", "USAGE", key, "SAMPLES", 0), is_read=True)
        )
        return answer

    async def eviction_policies(self) -> set[str]:
        """Return the maxmemory-policy of each master. The set is empty if this Redis user may not read it."""
        sections = await self.read_info("memory")
        if not sections:
            log.warning("the Redis user lacks INFO permission, so the eviction policy is not checked")
        return {section["maxmemory_policy"] for section in sections}

    async def read_info(self, section: str) -> list[dict[str, Any]]:
        """Return a section of INFO from each master. The list is empty if this Redis user may not read it."""
        try:
            masters = await self.list_masters()
            return [
                _parse_info(answer)
                for answer in await asyncio.gather(*(self._ask_master(master, "INFO", section) for master in masters))
            ]
        except StoreUnavailable as error:
            if "NOPERM" not in str(error):
                raise
            return []

    async def close(self) -> None:
        """Close the connections, also those of the caches that share them."""
        self._pool.close()
        await self.router.close()

    async def _ask_master(self, master: Master, *command: str) -> Any:
        return await self._timed("read", within_deadline(master.reads.send(command, decode_raw, is_tracked=False)))

    async def _run(
        self, ask: Callable[..., Awaitable[Any]], script: Script, keys: Sequence[str], arguments: Sequence[str | int]
    ) -> list[str | int]:
        """Run a script. A script that derives keys gets the guard key after its own keys.

        `_timed` is not used, because its coroutine would be 2 % of a refresh.
        """
        all_keys = (*keys, _guard_key(keys[0])) if script.derives_keys else keys
        parts, follows_ask = (len(all_keys), *all_keys, *arguments, self.clock_offset_ms()), not script.derives_keys
        started = time.perf_counter()
        try:
            try:
                verdict = await ask(keys[0], ("EVALSHA", script.sha1, *parts), follows_ask=follows_ask)
            except NoScriptError:
                # Nothing ran, because the server does not have the script (or lost it). Its text is sent instead.
                verdict = await ask(keys[0], ("EVAL", script.text, *parts), follows_ask=follows_ask)
        except StoreUnavailable:
            self._watch(script.name, time.perf_counter() - started, True)
            raise
        self._watch(script.name, time.perf_counter() - started, False)
        return [part.decode() if isinstance(part, bytes) else part for part in verdict]


def _guard_key(key: str) -> str:
    """Return the name of a key that never exists, in the slot of the given key.

    A script that derives names of keys declares the guard key. In a slot that is moving Redis then refuses to run the
    script, instead of running it while some of the derived keys are missing.
    """
    return f"guard:{key[key.index('{') : key.index('}') + 1]}"


async def _leave_nothing() -> None:
    pass


def _parse_info(text: bytes) -> dict[str, Any]:
    """Parse lines of `name:value`, skipping comments. Whole numbers become integers."""
    pairs = (line.split(":", 1) for line in text.decode(errors="replace").splitlines() if ":" in line)
    return {name: int(value) if re.fullmatch(r"[0-9]{1,20}", value) else value for name, value in pairs}
