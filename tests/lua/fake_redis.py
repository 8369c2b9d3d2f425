"""fakeredis: a Redis inside this process, with a clock that a test moves."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fakeredis
import pytest
import redis

from service.redis_client.connection import Command
from service.redis_client.deadline import NoScriptError, StoreUnavailable
from service.redis_client.script import Argument, Script
from service.redis_client.url import parse_redis_url
from service.store.client import StoreClient


class ServerClock:
    """The clock of fakeredis: its TIME and the expiry of its keys. It stands still between two calls of `advance`.

    It takes the place of the module `time` in the modules of fakeredis.
    """

    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def advance(self, seconds: int) -> None:
        """Move the clock. Whole seconds are exact in the floating-point times of fakeredis."""
        self.now_ms += 1000 * seconds

    def time(self) -> float:
        return self.now_ms / 1000

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@contextmanager
def moving_server_clock() -> Iterator[ServerClock]:
    """Replace the wall clock that fakeredis reads. The rest of the process keeps its own."""
    clock = ServerClock()
    readers = [module for name, module in sys.modules.items() if name.partition(".")[0] == "fakeredis"]
    with pytest.MonkeyPatch.context() as patch:
        for module in readers:
            if getattr(module, "time", None) is time:
                patch.setattr(module, "time", clock)
        yield clock


class FakeStoreClient(StoreClient):
    """A client of the store whose commands and scripts fakeredis answers. There are no durable writes."""

    def __init__(self, server: fakeredis.FakeServer) -> None:
        super().__init__(parse_redis_url("redis://fakeredis"))
        self._fake: Any = fakeredis.FakeRedis(server=server, protocol=2)

    async def read(self, *command: str | int) -> Any:
        return await self._ask("", command, follows_ask=True)

    async def write(self, *command: str | bytes | int) -> Any:
        return await self._ask("", command, follows_ask=True)

    async def run(self, script: Script, **values: Argument) -> list[str | int]:
        return await self._run(self._ask, script, *script.bind(values))

    async def _ask(self, key: str, command: Command, *, follows_ask: bool) -> Any:
        try:
            return self._fake.execute_command(*command)
        except redis.exceptions.NoScriptError as error:
            raise NoScriptError(str(error)) from error
        except redis.exceptions.ResponseError as error:
            raise StoreUnavailable(str(error)) from error
