"""A value that a background task provides, such as a connection. Readers wait until it is there or has failed."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from .deadline import StoreUnavailable
from .errors import NotSent

Value = TypeVar("Value")


class Availability(Generic[Value]):
    """A value that a background task maintains: available, pending, failed or ended.

    `get` waits while the value is pending.
    """

    def __init__(self) -> None:
        self.value: Value | None = None
        self._failure: str | None = None
        self._end: str | None = None
        self._changed = asyncio.Event()

    def set(self, value: Value) -> None:
        self.value, self._failure = value, None
        self._changed.set()

    def fail(self, failure: str) -> bool:
        """Record a failure: `get` raises StoreUnavailable at once, until the next success.

        The background task goes on trying. Returns False if the attempt before had failed as well.
        """
        is_first_failure = self._failure is None
        self.value, self._failure = None, failure
        self._changed.set()
        return is_first_failure

    def lose(self) -> None:
        """Mark the value as lost; `get` waits for the next attempt."""
        self.value, self._failure = None, None
        self._changed.clear()

    def end(self, why: str) -> None:
        """Close permanently. Waiting and later calls of `get` raise NotSent.

        The router may then retry on another node.
        """
        self.value, self._end = None, why
        self._changed.set()

    async def get(self) -> Value:
        """Wait while the value is pending, and return it.

        Raises StoreUnavailable after `fail` and NotSent after `end`.
        """
        while self.value is None:
            if self._end is not None:
                raise NotSent(self._end)
            if self._failure is not None:
                raise StoreUnavailable(self._failure)
            await self._changed.wait()
        return self.value
