"""Connections to Redis that fail or do something between calls, and a Redis that loses its last writes."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import redis

from service.config.settings import Settings
from service.redis_client.connection import Command
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.script import Argument, Script
from service.redis_client.topology import Master
from service.redis_client.url import parse_redis_url
from service.store.client import StoreClient


class InterposedConnection(StoreClient):
    """A store client that awaits `before` with the number of each call, from 0 on.

    Calls of the lock do not count, since a lock that is not released is held for long.
    """

    def __init__(self, settings: Settings, before: Callable[[int], Awaitable[object]]) -> None:
        assert settings.redis_url is not None
        super().__init__(parse_redis_url(settings.redis_url))
        self.calls = 0
        self._before = before

    async def read(self, *command: str | int) -> Any:
        return await self._call(super().read, *command)

    async def write(self, *command: str | bytes | int) -> Any:
        if str(command[1]).startswith("lock:"):
            return await super().write(*command)
        return await self._call(super().write, *command)

    async def run(self, script: Script, **values: Argument) -> list[str | int]:
        if script.name.endswith("_lock"):
            return await super().run(script, **values)
        return list(await self._call(super().run, script, **values))

    async def read_many(self, commands: Sequence[Command], master: Master | None = None) -> list[Any]:
        return list(await self._call(super().read_many, commands, master))

    async def write_many(self, commands: Sequence[Command]) -> list[Any]:
        return list(await self._call(super().write_many, commands))

    async def _call(self, call: Callable[..., Awaitable[Any]], *arguments: Any, **values: Any) -> Any:
        number = self.calls
        self.calls += 1
        await self._before(number)
        return await call(*arguments, **values)


class BreakingConnection(InterposedConnection):
    """A store client that allows `calls` calls and refuses all further ones.

    So it behaves as if its process died or Redis went away.
    """

    def __init__(self, settings: Settings, *, calls: int) -> None:
        async def refuse(number: int) -> None:
            if number >= calls:
                raise StoreUnavailable("broken by the test")

        super().__init__(settings, refuse)


async def is_broken_off(settings: Settings, calls: int, work: Callable[[StoreClient], Awaitable[object]]) -> bool:
    """Do the work over a connection that fails after so many calls. Returns True if it failed."""
    connection = BreakingConnection(settings, calls=calls)
    try:
        await work(connection)
    except StoreUnavailable:
        return True
    finally:
        await connection.close()
    return False


class Rollback:
    """Copies of all keys in earlier states, to return to one as a failover does that loses writes."""

    def __init__(self, store: redis.Redis) -> None:
        self._store = store
        self._states = 0
        for key in map(str, store.scan_iter("state *", count=1000)):
            store.delete(key)

    def save(self) -> None:
        for key in self._list_keys():
            self._store.copy(key, f"state {self._states}:{key}")
        self._states += 1

    def return_to(self, state: int) -> None:
        for key in self._list_keys():
            self._store.delete(key)
        for copy in map(str, self._store.scan_iter(f"state {state}:*", count=1000)):
            self._store.copy(copy, copy.partition(":")[2])

    def _list_keys(self) -> list[str]:
        return [key for key in map(str, self._store.scan_iter(count=1000)) if not key.startswith("state ")]
