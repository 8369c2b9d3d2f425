"""Watches of access tokens, which report the end of a token while work that it allowed is under way.

A watch reads its key once, with tracking, so an idle watch sends no commands. An invalidation of the key, or a
connection that is no longer trusted, puts the watch in doubt. Then a bounded number of tasks reads the keys again.

Clauses: RFC 6749 §7, SPEC §4.5
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Final, Literal

from ..redis_client.deadline import StoreUnavailable, read_clock
from ..redis_client.managed_connection import TRUSTED_SECONDS
from ..redis_client.tracked_cache import Trust

Reason = Literal["expired", "revoked", "unavailable"]

SILENCE_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 0.5
ASKED_AT_ONCE: Final = 100

_CONTEXT: Final = Context()
"""The empty context of all timers. A context for each would take memory, and keep the data of a request."""


class Watch:
    """The watch of one key. Its times are by `read_clock`.

    `trust` is that of the connection that tracks the key, or None while the watch is in doubt. `live_at` is the last
    moment at which the token is known to have been live. `futures` has one future for each caller.
    """

    __slots__ = ("_watches", "expires_at", "futures", "key", "live_at", "timer", "trust")

    def __init__(self, watches: Watches, key: str) -> None:
        self._watches = watches
        self.key = key
        self.trust: Trust | None = None
        self.live_at = read_clock() - TRUSTED_SECONDS  # the caller may have found the token in a cache
        self.expires_at = math.inf
        self.timer: asyncio.TimerHandle | None = None
        self.futures: list[asyncio.Future[Reason]] = []

    def release(self, future: asyncio.Future[Reason]) -> None:
        self.futures.remove(future)
        if not self.futures:
            self._watches.forget(self)


class Watches:
    """The watches of a lookup.

    `ask` reads the key of a watch, and calls `note` or `end` at the place of the answer in the stream. It raises
    StoreUnavailable. A watch in doubt is asked for again after `retry_seconds`.
    """

    def __init__(
        self,
        ask: Callable[[Watch], Awaitable[None]],
        *,
        silence_seconds: float = SILENCE_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._ask = ask
        self._silence_seconds = silence_seconds
        self._retry_seconds = retry_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._by_key: dict[str, Watch] = {}
        self._doubted: deque[Watch] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, key: str) -> asyncio.Future[Reason]:
        """Return a future of the reason for which the key's token ends. Cancelling the last one ends the watch."""
        future: asyncio.Future[Reason] = asyncio.get_running_loop().create_future()
        if self._loop is not future.get_loop():
            self._loop = future.get_loop()  # the watches of an earlier event loop ended with that loop
            self._by_key, self._doubted, self._tasks = {}, deque(), set()
        watch = self._by_key.setdefault(key, Watch(self, key))
        watch.futures.append(future)
        future.add_done_callback(watch.release, context=_CONTEXT)
        if watch.timer is None:
            self._check(watch)
        return future

    def note(self, watch: Watch, asked_at: float, expires_at: float, trust: Trust | None) -> None:
        """Note that the token is live. `trust` is None if Redis will not tell of a change of the key."""
        if watch.futures:
            watch.live_at, watch.expires_at, watch.trust = max(watch.live_at, asked_at), expires_at, trust
            if trust is not None:
                trust.on_end.add(self.doubt_all)
            self._set_timer(watch, self._retry_seconds)

    def doubt(self, key: str) -> None:
        """Ask again for a key that changed."""
        watch = self._by_key.get(key)
        if watch is not None and watch.trust is not None:
            watch.live_at = max(watch.live_at, watch.trust.until - TRUSTED_SECONDS)
            watch.trust = None
        if watch is not None:
            self._check(watch)

    def doubt_all(self, trust: Trust | None = None) -> None:
        """Ask again for all keys, or for those that were tracked on a connection that is no longer trusted."""
        for watch in list(self._by_key.values()):
            if trust is None or watch.trust is trust:
                self.doubt(watch.key)

    def end_all(self) -> None:
        for watch in list(self._by_key.values()):
            self.end(watch, "unavailable")

    def end(self, watch: Watch, reason: Reason) -> None:
        for future in watch.futures:
            if not future.done():
                future.set_result(reason)
        self.forget(watch)

    def _check(self, watch: Watch) -> None:
        """Stop the watch if its token has expired, and read its key again if its state is unknown."""
        now = read_clock()
        if now >= watch.expires_at:
            self.end(watch, "expired")
        elif watch.trust is None and now >= watch.live_at + self._silence_seconds:
            self.end(watch, "unavailable")
        else:
            self._set_timer(watch)
            if watch.trust is None:
                self._doubted.append(watch)
                if len(self._tasks) < ASKED_AT_ONCE:
                    task = asyncio.get_running_loop().create_task(self._ask_doubted(), context=Context())
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

    def _set_timer(self, watch: Watch, retry_seconds: float = math.inf) -> None:
        """Set the timer to the expiry. For a watch in doubt, set it to its end or its next read if they come first."""
        if watch.timer is not None:
            watch.timer.cancel()
        now, due = read_clock(), watch.expires_at
        if watch.trust is None:
            due = min(due, now + retry_seconds, watch.live_at + self._silence_seconds)
        watch.timer = asyncio.get_running_loop().call_later(due - now, self._check, watch, context=_CONTEXT)

    async def _ask_doubted(self) -> None:
        while self._doubted:
            watch = self._doubted.popleft()
            try:
                if watch.futures:
                    await self._ask(watch)
            except StoreUnavailable:
                if watch.futures:
                    self._set_timer(watch, self._retry_seconds)

    def forget(self, watch: Watch) -> None:
        if self._by_key.get(watch.key) is watch:
            del self._by_key[watch.key]
        if watch.timer is not None:
            watch.timer.cancel()
