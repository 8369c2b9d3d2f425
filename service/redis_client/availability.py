"""The state of something that a background task keeps up."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from .deadline import StoreUnavailable
from .errors import NotSent

Value = TypeVar("Value")


class Availability(Generic[Value]):
    """What a task in the background keeps up: there, on its way, or not to be had, and why."""

    def __init__(self) -> None:
        self.value: Value | None = None
        self._trouble: str | None = None
        self._end: str | None = None
        self._changed = asyncio.Event()

    def set(self, value: Value) -> None:
        self.value, self._trouble = value, None
        self._changed.set()

    def fail(self, failure: str) -> bool:
        """Until the next success whoever asks is told at once; the task goes on trying. False: that was so before."""
        is_news = self._trouble is None
        self.value, self._trouble = None, failure
        self._changed.set()
        return is_news

    def lose(self) -> None:
        """Whoever asks waits for the next attempt, which is about to begin."""
        self.value, self._trouble = None, None
        self._changed.clear()

    def end(self, why: str) -> None:
        """For good: whoever asks or waits may have better luck elsewhere."""
        self.value, self._end = None, why
        self._changed.set()

    async def get(self) -> Value:
        while self.value is None:
            if self._end is not None:
                raise NotSent(self._end)
            if self._trouble is not None:
                raise StoreUnavailable(self._trouble)
            await self._changed.wait()
        return self.value
