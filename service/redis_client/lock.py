"""A lock in Redis for all processes of the service."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from .client import RedisClient
from .deadline import StoreUnavailable, end_task
from .script import OWN_SCRIPTS

LOCK_SECONDS: Final = 10
LOCK_PAUSE_SECONDS: Final = 0.05

Result = TypeVar("Result")


class LockHeld(Exception):
    """Another holder has kept the lock for longer than the caller waits. Nothing was changed."""


_KEEP: Final = OWN_SCRIPTS["keep_lock"]


class RedisLock:
    """A lock with one holder at a time. It expires after LOCK_SECONDS unless it is renewed.

    So the lock of a dead holder becomes free.

    `on_wait` is called once if another holder has the lock. Raises LockHeld after `wait_seconds`, unless that is None.
    """

    def __init__(
        self, redis: RedisClient, key: str, on_wait: Callable[[], object], wait_seconds: float | None = None
    ) -> None:
        self._redis = redis
        self._key = key
        self._on_wait = on_wait
        self._wait_seconds = wait_seconds
        self._holder = secrets.token_hex(16)

    async def __aenter__(self) -> RedisLock:
        if not await self._take():
            self._on_wait()
            started = time.monotonic()
            while not await self._take():
                if self._wait_seconds is not None and time.monotonic() - started >= self._wait_seconds:
                    raise LockHeld(self._key)
                await asyncio.sleep(LOCK_PAUSE_SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(StoreUnavailable):
            await self._keep(0)

    async def renew(self) -> None:
        """Extend the lifetime of the lock. Raises StoreUnavailable if another holder may already have the lock."""
        if await self._keep(1000 * LOCK_SECONDS) != "kept":
            raise StoreUnavailable(f"the lock {self._key} has expired, and another process may hold it")

    async def renew_during(self, work: Awaitable[Result]) -> Result:
        """Wait for long work and renew the lock until it is done. The work is cancelled if the lock was lost."""
        task: asyncio.Future[Result] = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait([task], timeout=LOCK_SECONDS / 4))[0]:
                await self.renew()
        finally:
            await end_task(task)
        return task.result()

    async def _take(self) -> bool:
        command = ("SET", self._key, self._holder, "NX", "PX", 1000 * LOCK_SECONDS)
        return await self._redis.write(*command) is not None

    async def _keep(self, lifetime_ms: int) -> str | int:
        return (await self._redis.run(_KEEP, lock_key=self._key, holder=self._holder, lifetime_ms=lifetime_ms))[0]
