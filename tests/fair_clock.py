"""A clock for time limits: it stands still while the machine does not let this event loop run.

Other work on the machine holds a test up, and that is no fault of what it tests. What keeps the processor busy here
does count.
"""

from __future__ import annotations

import asyncio
import time
import weakref

TICK_SECONDS = 0.005


class _Ticker:
    """Wakes up all the time, and notes how late it was without having been at work."""

    def __init__(self) -> None:
        self._held_up = 0.0
        self._begin()

    def _begin(self) -> None:
        self._due, self._worked = time.monotonic() + TICK_SECONDS, time.thread_time()

    def _late(self) -> float:
        return max(0.0, time.monotonic() - self._due - (time.thread_time() - self._worked))

    def read(self) -> float:
        return time.monotonic() - self._held_up - self._late()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._held_up += self._late()
            self._begin()


_tickers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[_Ticker, asyncio.Task[None]]] = (
    weakref.WeakKeyDictionary()
)


def read_fair_clock() -> float:
    """In seconds, to be compared with another reading in the same event loop only."""
    loop = asyncio.get_running_loop()
    if loop not in _tickers:
        ticker = _Ticker()
        _tickers[loop] = ticker, loop.create_task(ticker.run())
    return _tickers[loop][0].read()
