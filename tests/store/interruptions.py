"""Connections to Redis that fail or do something between calls, and a Redis that loses its last writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import redis

from service.config.settings import Settings
from service.redis_client.connection import Command
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.managed_connection import ManagedConnection
from service.redis_client.script import Script
from service.redis_client.url import parse_redis_url
from service.store.client import StoreClient


class BreakingConnection(StoreClient):
    """A store client that allows `calls` calls and refuses all further ones.

    Calls of the lock are always allowed, since a lock that is not released is held for long.
    """

    def __init__(self, settings: Settings, *, calls: int) -> None:
        assert settings.redis_url is not None
        super().__init__(parse_redis_url(settings.redis_url))
        self._left = calls

    async def read(self, *command: str | int) -> Any:
        self._count()
        return await super().read(*command)

    async def write(self, *command: str | bytes | int) -> Any:
        self._count()
        return await super().write(*command)

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[str | int]) -> list[str | int]:
        if not script.name.endswith("_lock"):
            self._count()
        return await super().run(script, keys, arguments)

    async def read_many(self, commands: Sequence[Command], master: ManagedConnection | None = None) -> list[Any]:
        self._count()
        return await super().read_many(commands, master)

    async def write_many(self, commands: Sequence[Command]) -> list[Any]:
        self._count()
        return await super().write_many(commands)

    def _count(self) -> None:
        if self._left == 0:
            raise StoreUnavailable("broken by the test")
        self._left -= 1


class InterposedConnection(StoreClient):
    """A store client that awaits `before` with the number of each script, from 0 on, before it runs the script."""

    def __init__(self, settings: Settings, before: Callable[[int], Awaitable[object]]) -> None:
        assert settings.redis_url is not None
        super().__init__(parse_redis_url(settings.redis_url))
        self.scripts_run = 0
        self._before = before

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[str | int]) -> list[str | int]:
        await self._before(self.scripts_run)
        self.scripts_run += 1
        return await super().run(script, keys, arguments)


class Rollback:
    """Copies of all keys of a shard in earlier states, to return to one as a failover does that loses writes."""

    def __init__(self, store: redis.Redis, shard: str) -> None:
        self._store = store
        self._shard = shard
        self._states = 0

    def forget(self) -> None:
        """Delete everything of the shard but its users, and the saved states."""
        for key in map(str, self._store.scan_iter(f"*{{{self._shard}}}*", count=1000)):
            if self._store.ttl(key) >= 0 or key.startswith("state "):
                self._store.delete(key)

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
        keys = map(str, self._store.scan_iter(f"*{{{self._shard}}}*", count=1000))
        return [key for key in keys if not key.startswith("state ")]
