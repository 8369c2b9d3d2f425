"""A connection to Redis that fails after a number of calls, as if its process died or Redis went away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.config.settings import Settings
from service.redis_client.connection import Command
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.master import Master
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

    async def read_many(self, commands: Sequence[Command], master: Master | None = None) -> list[Any]:
        self._count()
        return await super().read_many(commands, master)

    async def write_many(self, commands: Sequence[Command]) -> list[Any]:
        self._count()
        return await super().write_many(commands)

    def _count(self) -> None:
        if self._left == 0:
            raise StoreUnavailable("broken by the test")
        self._left -= 1
