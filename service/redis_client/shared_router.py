"""A router that is made at its first use, and that several users share: requests, lookups and the registry.

Redis tracks the key of a read only if CLIENT CACHING YES stands before that read (OPTIN). So all reads can share a
tracked connection, and those that no cache keeps cost the server no table entries.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Final
from weakref import WeakSet

from .deadline import StoreUnavailable
from .options import ConnectionOptions
from .router import Router
from .tracked_cache import InvalidationListener, ListenersByKind

_routers: Final[WeakSet[SharedRouter]] = WeakSet()


class SharedRouter:
    """The router of one event loop at a time. The next event loop may use it once the one before has ended.

    The connections of an event loop that has ended ended with it. `options` count from the next first use on. Its
    `listener` is set here: a connection tracks keys if there was a listener before the first use.
    """

    def __init__(self, options: ConnectionOptions, *, on_moving_slot: Callable[[], None] = lambda: None) -> None:
        self.options = options
        self._on_moving_slot = on_moving_slot
        self._listeners = ListenersByKind()
        self._router: Router | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        _routers.add(self)

    def listen(self, kind: str, listener: InvalidationListener) -> None:
        """Let a cache get the invalidations of one kind of key. Call this before the first use."""
        self._listeners.add(kind, listener)

    def get(self) -> Router:
        """Return the router of this event loop, and make it at the first use.

        Raises RuntimeError in a thread while the event loop of another thread uses this.
        """
        # This is called for every command, and `asyncio.get_running_loop` would make a system call.
        thread = threading.get_ident()
        if self._router is None or self._loop is None or self._thread != thread or not self._loop.is_running():
            self._router = self._make_router(thread)
        return self._router

    def forget_loop(self) -> None:
        """Make a new router at the next use."""
        self._loop = None

    def now_ms(self) -> int:
        """Return Redis time in ms since 1970. Raises StoreUnavailable before the first answer of Redis."""
        if self._router is None:
            raise StoreUnavailable("Redis has not been asked yet")
        return self._router.now_ms()

    async def close(self) -> None:
        """Close the connections of this event loop. A later use would open new ones."""
        if self._router is not None and self._loop is asyncio.get_running_loop():
            router, self._router = self._router, None
            await router.close()

    def _make_router(self, thread: int) -> Router:
        loop = asyncio.get_running_loop()
        if self._router is not None and self._loop is not None and self._loop is not loop and self._loop.is_running():
            raise RuntimeError("another event loop uses these connections to Redis; make a lookup for each event loop")
        self._listeners.invalidate(None)
        self._loop, self._thread = loop, thread
        options = self.options._replace(listener=self._listeners if self._listeners else None)
        return Router(options, on_moving_slot=self._on_moving_slot)


def _forget_loops() -> None:
    """Keep a forked child from sending its commands on the connections of its parent."""
    for router in _routers:
        router.forget_loop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_loops)
